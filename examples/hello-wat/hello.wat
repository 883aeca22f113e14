;; A WASI preview 1 command in CGI style, by hand: headers, an empty line and
;; the body go to standard output.
(module $hello
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param $fd i32) (param $iovs i32) (param $count i32) (param $written i32)
      (result i32)))

  (memory (export "memory") 1)

  ;; One iovec: where the bytes start (16) and how many they are.
  (data (i32.const 0) "\10\00\00\00" "\30\00\00\00")
  (data (i32.const 16) "Content-Type: text/plain\n" "\n" "Hello from a microVM.\n")

  (func $_start (export "_start")
    ;; Standard output is descriptor 1; the count of bytes written goes to 8.
    (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))
    drop))
