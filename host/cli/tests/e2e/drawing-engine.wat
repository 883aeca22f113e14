;; A language engine that draws randomness while it is instantiated, and keeps it.
(component
  (import "wasi:http/types@0.2.0" (instance $types
    (export "incoming-request" (type (sub resource)))
    (export "response-outparam" (type (sub resource)))))
  (import "wasi:random/random@0.2.0" (instance $random
    (export "get-random-u64" (func (result u64)))))
  (alias export $types "incoming-request" (type $request))
  (alias export $types "response-outparam" (type $outparam))
  (alias export $random "get-random-u64" (func $draw))
  (core func $draw (canon lower (func $draw)))
  (core module $code
    (import "" "draw" (func $draw (result i64)))
    (global $kept (mut i64) (i64.const 0))
    (func $begin (global.set $kept (call $draw)))
    (start $begin)
    (func (export "handle") (param i32 i32))
    (func (export "init")))
  (core instance $code (instantiate $code
    (with "" (instance (export "draw" (func $draw))))))
  (func $handle (param "request" (own $request)) (param "response-out" (own $outparam))
    (canon lift (core func $code "handle")))
  (func $init (canon lift (core func $code "init")))
  (instance $handler (export "handle" (func $handle)))
  (export "wasi:http/incoming-handler@0.2.0" (instance $handler))
  (instance $script (export "init" (func $init)))
  (export "faasw:engine/script@0.1.0" (instance $script)))
