;; A command whose instantiation writes each page of 480 MiB.
(module
  (import "wasi_snapshot_preview1" "fd_write"
    (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 7680)
  (data (i32.const 0) "\10\00\00\00\2d\00\00\00")
  (data (i32.const 16) "Status: 200 OK\nContent-Type: text/plain\n\nfull")

  (func $init (local $at i32)
    (local.set $at (i32.const 0x1000))
    (loop $pages
      (i32.store (local.get $at) (local.get $at))
      (local.set $at (i32.add (local.get $at) (i32.const 0x1000)))
      (br_if $pages (i32.lt_u (local.get $at) (i32.const 0x1e000000)))))
  (start $init)

  ;; Traps where a page is not as it was written.
  (func (export "_start") (local $at i32)
    (local.set $at (i32.const 0x1000))
    (loop $pages
      (if (i32.ne (i32.load (local.get $at)) (local.get $at)) (then unreachable))
      (local.set $at (i32.add (local.get $at) (i32.const 0x1000)))
      (br_if $pages (i32.lt_u (local.get $at) (i32.const 0x1e000000))))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))
