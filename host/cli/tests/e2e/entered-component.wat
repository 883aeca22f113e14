;; A handler that comes to its func-entry point while it is instantiated and draws behind it, or
;; where an export of its own is called. It ends well only where it drew and came out of that.
(component
  (import "wasi:http/types@0.2.0" (instance $types
    (export "incoming-request" (type (sub resource)))
    (export "response-outparam" (type (sub resource)))))
  (import "wasi:random/random@0.2.0" (instance $random
    (export "get-random-u64" (func (result u64)))))
  (import "faasw:function/entry@0.1.3" (instance $entry (export "freeze" (func))))
  (alias export $types "incoming-request" (type $request))
  (alias export $types "response-outparam" (type $outparam))
  (alias export $random "get-random-u64" (func $draw))
  (alias export $entry "freeze" (func $freeze))
  (core func $draw (canon lower (func $draw)))
  (core func $freeze (canon lower (func $freeze)))
  (core module $code
    (import "" "draw" (func $draw (result i64)))
    (import "" "freeze" (func $freeze))
    (import "" "point" (func $point))
    (global $fresh (mut i64) (i64.const 0))
    (func $begin
      (call $freeze)
      (global.set $fresh (call $draw)))
    (func (export "prepare")
      (call $point)
      (global.set $fresh (call $draw)))
    (start $begin)
    (func (export "handle") (param i32 i32)
      (if (i64.eqz (global.get $fresh)) (then unreachable))))
  (core instance $code (instantiate $code
    (with "" (instance
      (export "draw" (func $draw))
      (export "freeze" (func $freeze))
      (export "point" (func $freeze))))))
  (func (export "prepare") (canon lift (core func $code "prepare")))
  (func $handle (param "request" (own $request)) (param "response-out" (own $outparam))
    (canon lift (core func $code "handle")))
  (instance $handler (export "handle" (func $handle)))
  (export "wasi:http/incoming-handler@0.2.0" (instance $handler)))
