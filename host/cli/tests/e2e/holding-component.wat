;; A command that gets its standard output when it is initialised and writes to that when it
;; runs: the handle is in its memory, the stream is the host's.
(component $holding
  (import "wasi:io/error@0.2.0" (instance $error
    (export "error" (type (sub resource)))))
  (alias export $error "error" (type $io_error))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (alias outer $holding $io_error (type $failed))
    (export "error" (type $error (eq $failed)))
    (export "output-stream" (type $output_stream (sub resource)))
    (type $failure (variant (case "last-operation-failed" (own $error)) (case "closed")))
    (export "stream-error" (type $stream_error (eq $failure)))
    (export "[method]output-stream.blocking-write-and-flush" (func
      (param "self" (borrow $output_stream))
      (param "contents" (list u8))
      (result (result (error $stream_error)))))))
  (alias export $streams "output-stream" (type $io_output_stream))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (alias outer $holding $io_output_stream (type $stream))
    (export "output-stream" (type $output_stream (eq $stream)))
    (export "get-stdout" (func (result (own $output_stream))))))

  (core module $memory_module (memory (export "memory") 1))
  (core instance $memory (instantiate $memory_module))
  (alias core export $memory "memory" (core memory $memory))
  (core func $stdout (canon lower (func $stdout "get-stdout")))
  (core func $write (canon lower
    (func $streams "[method]output-stream.blocking-write-and-flush") (memory $memory)))

  (core module $code
    (import "memory" "memory" (memory 1))
    (import "host" "stdout" (func $stdout (result i32)))
    (import "host" "write" (func $write (param i32 i32 i32 i32)))
    (data (i32.const 0) "Content-Type: text/plain\n\nheld\n")
    (global $stdout (mut i32) (i32.const 0))
    (func (export "prepare") (global.set $stdout (call $stdout)))
    (func (export "run") (result i32)
      (call $write (global.get $stdout) (i32.const 0) (i32.const 31) (i32.const 256))
      (i32.const 0)))
  (core instance $code (instantiate $code
    (with "memory" (instance $memory))
    (with "host" (instance (export "stdout" (func $stdout)) (export "write" (func $write))))))

  (func $prepare (canon lift (core func $code "prepare")))
  (export "prepare" (func $prepare))
  (func $run (result (result)) (canon lift (core func $code "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command)))
