;; A command that tells on standard error when it is initialised and when it is called, and keeps
;; no stream: what it asks of the host is in its log.
(component $telling
  (import "wasi:io/error@0.2.0" (instance $error
    (export "error" (type (sub resource)))))
  (alias export $error "error" (type $io_error))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (alias outer $telling $io_error (type $failed))
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
    (alias outer $telling $io_output_stream (type $stream))
    (export "output-stream" (type $output_stream (eq $stream)))
    (export "get-stdout" (func (result (own $output_stream))))))
  (import "wasi:cli/stderr@0.2.0" (instance $stderr
    (alias outer $telling $io_output_stream (type $stream))
    (export "output-stream" (type $output_stream (eq $stream)))
    (export "get-stderr" (func (result (own $output_stream))))))

  (core module $memory_module (memory (export "memory") 1))
  (core instance $memory (instantiate $memory_module))
  (alias core export $memory "memory" (core memory $memory))
  (core func $stdout (canon lower (func $stdout "get-stdout")))
  (core func $stderr (canon lower (func $stderr "get-stderr")))
  (core func $write (canon lower
    (func $streams "[method]output-stream.blocking-write-and-flush") (memory $memory)))
  (core func $drop (canon resource.drop $io_output_stream))

  (core module $code
    (import "memory" "memory" (memory 1))
    (import "host" "stdout" (func $stdout (result i32)))
    (import "host" "stderr" (func $stderr (result i32)))
    (import "host" "write" (func $write (param i32 i32 i32 i32)))
    (import "host" "drop" (func $drop (param i32)))
    (data (i32.const 0) "Content-Type: text/plain\n\n")
    (data (i32.const 64) "initialised\n")
    (data (i32.const 80) "asked\n")
    (global $initialised (mut i32) (i32.const 48))
    (func $say (param $to i32) (param $at i32) (param $size i32)
      (call $write (local.get $to) (local.get $at) (local.get $size) (i32.const 256))
      (call $drop (local.get $to)))
    (func (export "prepare")
      (global.set $initialised (i32.add (global.get $initialised) (i32.const 1)))
      (call $say (call $stderr) (i32.const 64) (i32.const 12)))
    (func (export "run") (result i32)
      ;; How often it was initialised, behind the head.
      (i32.store8 (i32.const 26) (global.get $initialised))
      (call $say (call $stdout) (i32.const 0) (i32.const 27))
      (call $say (call $stderr) (i32.const 80) (i32.const 6))
      (i32.const 0)))
  (core instance $code (instantiate $code
    (with "memory" (instance $memory))
    (with "host" (instance
      (export "stdout" (func $stdout))
      (export "stderr" (func $stderr))
      (export "write" (func $write))
      (export "drop" (func $drop))))))

  (func $prepare (canon lift (core func $code "prepare")))
  (export "prepare" (func $prepare))
  (func $run (result (result)) (canon lift (core func $code "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command)))
