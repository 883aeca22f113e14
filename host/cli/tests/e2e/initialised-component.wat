;; A command component that ends well only where it was initialised, by an export of its own
;; or by one of an exported interface.
(component $initialised
  (core module $code
    (global $is_prepared (mut i32) (i32.const 0))
    (func (export "prepare") (global.set $is_prepared (i32.const 1)))
    (func (export "run") (result i32)
      (if (i32.eqz (global.get $is_prepared)) (then unreachable))
      (i32.const 0)))
  (core instance $code (instantiate $code))
  (func $prepare (canon lift (core func $code "prepare")))
  (func $run (result (result)) (canon lift (core func $code "run")))
  (export "prepare" (func $prepare))
  (instance $steps (export "prepare" (func $prepare)))
  (export "test:steps/steps@1.0.0" (instance $steps))
  (instance $run (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $run)))
