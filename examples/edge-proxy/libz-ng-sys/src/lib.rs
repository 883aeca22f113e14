//! zlib under the name of zlib-ng's bindings, which have the same interface
//! but need cmake to build.

pub use libz_sys::*;
