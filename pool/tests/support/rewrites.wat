;; A command that writes few pages of its 480 MiB when it is instantiated, far apart, and each
;; of them in a request.
(module
  (import "wasi_snapshot_preview1" "fd_write"
    (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 7680)
  (data (i32.const 0) "\10\00\00\00\30\00\00\00")
  (data (i32.const 16) "Status: 200 OK\nContent-Type: text/plain\n\nwritten")

  (func $every (param $step i32) (local $at i32)
    (local.set $at (i32.const 0x1000))
    (loop $pages
      (i32.store (local.get $at) (i32.const 1))
      (local.set $at (i32.add (local.get $at) (local.get $step)))
      (br_if $pages (i32.lt_u (local.get $at) (i32.const 0x1e000000)))))

  (func $init (call $every (i32.const 0x100000)))
  (start $init)

  (func (export "_start")
    (call $every (i32.const 0x1000))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))
