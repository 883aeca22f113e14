;; A CGI command that tells how often it was initialised and how often it was called since it
;; was instantiated, as two digits; and exports that an initialisation must not be.
(module $initialised
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get"
    (func $clock (param i32 i64 i32) (result i32)))
  (memory (export "memory") 1)
  ;; Two iovecs, at 0 and 8: the headers at 32 (26 bytes), the digits at 64 (3).
  (data (i32.const 0) "\20\00\00\00\1a\00\00\00" "\40\00\00\00\03\00\00\00")
  (data (i32.const 32) "Content-Type: text/plain\n\n")
  (data (i32.const 64) "00\n")

  (func $count (param $digit i32)
    (i32.store8 (local.get $digit) (i32.add (i32.load8_u (local.get $digit)) (i32.const 1))))

  (func $prepare (export "prepare") (call $count (i32.const 64)))
  (func (export "prepare-by-chance")
    (drop (call $random (i32.const 512) (i32.const 8)))
    (call $prepare))
  (func (export "prepare-by-clock")
    (drop (call $clock (i32.const 0) (i64.const 0) (i32.const 512)))
    (call $prepare))
  (func (export "traps") unreachable)
  (func (export "never-ends") (loop $again (br $again)))
  (func (export "takes-one") (param i32))
  (global (export "no-function") i32 (i32.const 0))

  (func (export "_start")
    (call $count (i32.const 65))
    (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))
    (drop (call $fd_write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 16)))))
