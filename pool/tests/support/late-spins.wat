;; A command that is initialised at once before the year 2100, and never after that: it spins.
(module
  (import "wasi_snapshot_preview1" "clock_time_get"
    (func $now (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff"
    (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 1024) "late\n")
  (data (i32.const 1040) "\00\04\00\00\05\00\00\00")

  (func $initialise (local $left i32)
    (drop (call $now (i32.const 0) (i64.const 1) (i32.const 0)))
    (if (i64.ge_u (i64.load (i32.const 0)) (i64.const 4102444800000000000))
      (then
        (drop (call $fd_write (i32.const 2) (i32.const 1040) (i32.const 1) (i32.const 1048)))
        ;; A millisecond of the monotonic clock now and then: the node reads the log of a guest that
        ;; waits.
        (i32.store (i32.const 80) (i32.const 1))
        (i64.store (i32.const 88) (i64.const 1000000))
        (loop $ever
          (drop (call $poll (i32.const 64) (i32.const 256) (i32.const 1) (i32.const 512)))
          (local.set $left (i32.const 0x4000000))
          (loop $spin
            (br_if $spin (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
          (br $ever)))))
  (start $initialise)

  (func (export "_start")))
