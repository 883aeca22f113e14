;; A CGI command that computes for some milliseconds before it answers.
(module
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\10\00\00\00\10\00\00\00")
  (data (i32.const 16) "Status: 200 OK\n\n")
  (func (export "_start") (local $left i32)
    (local.set $left (i32.const 6000000))
    (loop $again
      (br_if $again
        (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
    (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))
