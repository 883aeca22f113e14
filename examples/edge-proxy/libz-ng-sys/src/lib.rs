//! zlib under the name of zlib-ng's bindings. Those have the same interface, but need cmake to
//! build.

pub use libz_sys::*;
