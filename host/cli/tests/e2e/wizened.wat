;; A CGI command that Wizer finds by itself: it tells how often it was initialised, in a
;; global, a memory and a second memory, and how often it was called; its log tells when it
;; was initialised. A large table of its is made there.
(module $wizened
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (memory $table 1)
  (global $initialised (mut i32) (i32.const 48))
  (global $wide (mut i64) (i64.const 0))
  (global $vector (mut v128) (v128.const i64x2 0 0))
  (global $single (mut f32) (f32.const 0))
  (global $double (mut f64) (f64.const 0))
  ;; Iovecs, at 0, 8 and 16: the headers at 32 (26 bytes), the digits at 64 (4), a line at 80.
  (data (i32.const 0) "\20\00\00\00\1a\00\00\00" "\40\00\00\00\04\00\00\00" "\50\00\00\00\0c\00\00\00")
  (data (i32.const 32) "Content-Type: text/plain\n\n")
  (data (i32.const 64) "000\n")
  (data (i32.const 80) "initialised\n")

  (func $count (param $digit i32)
    (i32.store8 (local.get $digit) (i32.add (i32.load8_u (local.get $digit)) (i32.const 1))))

  (func (export "wizer-initialize")
    (local $at i32)
    (call $count (i32.const 64))
    (global.set $initialised (i32.add (global.get $initialised) (i32.const 1)))
    (global.set $wide (i64.const -5))
    (global.set $vector (v128.const i64x2 1 2))
    (global.set $single (f32.const nan:0x200001))
    (global.set $double (f64.const -0.5))
    ;; Three pages more; what is in use of them is more than a guest tells in one piece, and each
    ;; word of it tells where it is.
    (drop (memory.grow $table (i32.const 3)))
    (loop $next
      (i32.store $table (local.get $at) (local.get $at))
      (local.set $at (i32.add (local.get $at) (i32.const 4)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 81920))))
    (drop (call $fd_write (i32.const 2) (i32.const 16) (i32.const 1) (i32.const 512))))

  ;; Whether all is as it was left.
  (func $is_whole (result i32)
    (local $at i32)
    (if (i32.ne (memory.size $table) (i32.const 4)) (then (return (i32.const 0))))
    (if (i64.ne (global.get $wide) (i64.const -5)) (then (return (i32.const 0))))
    (if (i64.ne (i64x2.extract_lane 1 (global.get $vector)) (i64.const 2))
      (then (return (i32.const 0))))
    (if (i32.ne (i32.reinterpret_f32 (global.get $single)) (i32.const 0x7fa00001))
      (then (return (i32.const 0))))
    (if (f64.ne (global.get $double) (f64.const -0.5)) (then (return (i32.const 0))))
    (loop $next
      (if (i32.ne (i32.load $table (local.get $at)) (local.get $at))
        (then (return (i32.const 0))))
      (local.set $at (i32.add (local.get $at) (i32.const 4)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 81920))))
    (i32.eqz (i32.load $table (i32.const 200000))))

  (func (export "_start")
    (i32.store8 (i32.const 65) (global.get $initialised))
    (call $count (i32.const 66))
    (if (i32.eqz (call $is_whole)) (then (i32.store8 (i32.const 64) (i32.const 63))))
    (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 512)))
    (drop (call $fd_write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 512)))))
