;; What `faasw doctor` runs: a WASI preview 1 command in CGI style.
(module
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  ;; One iovec: the text at 16, 43 bytes long.
  (data (i32.const 0) "\10\00\00\00\2b\00\00\00")
  (data (i32.const 16) "Content-Type: text/plain\0a\0afrom a microVM!\0a\0a")
  (func (export "_start")
    (drop (call $fd_write
      (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))
