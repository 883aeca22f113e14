;; A CGI response of an announced length, more than all buffers hold; then work, and a line that says that it is done.
(module $afterwards
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 17)
  ;; Two iovecs, at 0 and 8: what is to be written next, and the last line.
  (data (i32.const 8) "\60\00\00\00\0f\00\00\00")
  (data (i32.const 32) "Status: 200 OK\nContent-Length: 1000000\n\n")
  (data (i32.const 96) "all of it done\n")
  (func $write (param $from i32) (param $size i32)
    (loop $more
      (i32.store (i32.const 0) (local.get $from))
      (i32.store (i32.const 4) (local.get $size))
      (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))
      (local.set $from (i32.add (local.get $from) (i32.load (i32.const 16))))
      (local.set $size (i32.sub (local.get $size) (i32.load (i32.const 16))))
      (br_if $more (local.get $size))))
  (func $_start (export "_start") (local $turns i32)
    (call $write (i32.const 32) (i32.const 40))
    (call $write (i32.const 65536) (i32.const 1000000))
    (local.set $turns (i32.const 100000000))
    (loop $work
      (local.set $turns (i32.sub (local.get $turns) (i32.const 1)))
      (br_if $work (local.get $turns)))
    (drop (call $fd_write (i32.const 2) (i32.const 8) (i32.const 1) (i32.const 16)))))
