;; A command that writes few pages of its 64 MiB when it is instantiated, far apart, and
;; reads all of them in each request.
(module
  (import "wasi_snapshot_preview1" "fd_write"
    (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1024)
  (data (i32.const 0) "\10\00\00\00\2d\00\00\00")
  (data (i32.const 16) "Status: 200 OK\nContent-Type: text/plain\n\nread")

  ;; One of each MiB.
  (func $init (local $at i32)
    (local.set $at (i32.const 0x1000))
    (loop $pages
      (i32.store (local.get $at) (i32.const 1))
      (local.set $at (i32.add (local.get $at) (i32.const 0x100000)))
      (br_if $pages (i32.lt_u (local.get $at) (i32.const 0x4000000)))))
  (start $init)

  ;; Traps where there is more or less than was written.
  (func (export "_start") (local $at i32) (local $sum i32)
    (local.set $at (i32.const 0x1000))
    (loop $pages
      (local.set $sum (i32.add (local.get $sum) (i32.load (local.get $at))))
      (local.set $at (i32.add (local.get $at) (i32.const 0x1000)))
      (br_if $pages (i32.lt_u (local.get $at) (i32.const 0x4000000))))
    (if (i32.ne (local.get $sum) (i32.const 64)) (then unreachable))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))
