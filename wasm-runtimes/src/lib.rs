//! Language engines that faasw carries: components that take scripts, compressed.
//!
//! Each has a folder with its source or its pinned origin, its licences and `build.sh`, which
//! makes the component of registry packages; what it makes is checked in, so that a script can
//! be deployed offline. `docs/engines.md` says what an engine is.

mod built;

use std::io::{self, Read as _};

use built::{JS_BYTES, JS_SHA256, PYTHON_BYTES, PYTHON_SHA256};

/// A language engine that is carried.
#[derive(Clone, Copy, Debug)]
pub struct Carried {
    /// What it is called.
    pub name: &'static str,
    /// What scripts for it end with, without the dot.
    pub extensions: &'static [&'static str],
    /// SHA-256 of the component, as 64 hexadecimal digits.
    pub sha256: &'static str,
    /// Size of the component in bytes.
    pub bytes: u64,
    compressed: &'static [u8],
}

/// JavaScript: QuickJS-ng and the interfaces of the web that servers have.
pub const JAVASCRIPT: Carried = Carried {
    name: "js",
    extensions: &["js", "mjs"],
    sha256: JS_SHA256,
    bytes: JS_BYTES,
    compressed: include_bytes!("../js.wasm.zst"),
};

/// Python: CPython 3.14 with its library, WSGI and ASGI.
pub const PYTHON: Carried = Carried {
    name: "python",
    extensions: &["py"],
    sha256: PYTHON_SHA256,
    bytes: PYTHON_BYTES,
    compressed: include_bytes!("../python.wasm.zst"),
};

/// All of them.
pub const ALL: &[Carried] = &[JAVASCRIPT, PYTHON];

impl Carried {
    /// The component, unpacked; that takes some milliseconds.
    ///
    /// # Errors
    /// When it cannot be unpacked; of what is checked in that is tested.
    pub fn component(&self) -> io::Result<Vec<u8>> {
        let reader = ruzstd::decoding::StreamingDecoder::new(self.compressed);
        let mut component = Vec::new();
        let reader = reader.map_err(io::Error::other)?;
        reader.take(self.bytes).read_to_end(&mut component)?;
        Ok(component)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_carried_are_components() {
        for carried in ALL {
            let component = carried.component().unwrap();
            assert!(
                component.starts_with(b"\0asm\x0d\0\x01\0"),
                "{}",
                carried.name
            );
            assert_eq!(component.len() as u64, carried.bytes, "{}", carried.name);
            assert!(carried.compressed.len() <= 8 << 20, "{}", carried.name);
        }
    }
}
