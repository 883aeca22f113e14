;; A command that has more to do before its first request than to be instantiated.
(module
  (import "wasi_snapshot_preview1" "fd_write"
    (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\10\00\00\00\07\00\00\00")
  (data (i32.const 16) "count0\0a")

  ;; Counts, draws four random bytes, and tells the count.
  (func (export "init")
    (drop (call $random (i32.const 64) (i32.const 4)))
    (i32.store8 (i32.const 21) (i32.add (i32.load8_u (i32.const 21)) (i32.const 1)))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))

  ;; Takes 32 MiB more and writes each page of them; traps if there are not so many.
  (func (export "more") (local $at i32) (local $end i32)
    (local.set $at (memory.grow (i32.const 512)))
    (if (i32.eq (local.get $at) (i32.const -1)) (then unreachable))
    (local.set $at (i32.shl (local.get $at) (i32.const 16)))
    (local.set $end (i32.add (local.get $at) (i32.const 0x2000000)))
    (loop $pages
      (if (i32.load (local.get $at)) (then unreachable))
      (i32.store (local.get $at) (local.get $at))
      (local.set $at (i32.add (local.get $at) (i32.const 4096)))
      (br_if $pages (i32.lt_u (local.get $at) (local.get $end)))))

  (func (export "_start")
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))
