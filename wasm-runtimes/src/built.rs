//! Digests and sizes of the built components, which `built.sh` writes here.

/// SHA-256 of JavaScript's component.
pub(crate) const JS_SHA256: &str =
    "2fc151f55c981a0e838f471dca80c4efe3717e22d8973318be49874d81bb0426";

/// Size of JavaScript's component in bytes.
pub(crate) const JS_BYTES: u64 = 2277350;

/// SHA-256 of Python's component.
pub(crate) const PYTHON_SHA256: &str =
    "92f70810212a69201f25021103dc9cac725ad0078f0e36e273d93ee64b250488";

/// Size of Python's component in bytes.
pub(crate) const PYTHON_BYTES: u64 = 31320016;
