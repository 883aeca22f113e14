;; A command that can write to more places of its 560 MiB than a seed can have.
(module
  (memory (export "memory") 8960)

  ;; One page of each MiB, so that all of it is the seed's.
  (func (export "sparse") (call $every (i32.const 0x100000)))

  ;; Every other page.
  (func (export "alternate") (call $every (i32.const 0x2000)))

  (func $every (param $step i32) (local $at i32)
    (loop $pages
      (i32.store offset=4 (local.get $at) (i32.const 1))
      (local.set $at (i32.add (local.get $at) (local.get $step)))
      (br_if $pages (i32.lt_u (local.get $at) (i32.const 0x23000000)))))

  (func (export "_start")))
