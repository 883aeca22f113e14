//! Language engines that faasw carries: components that run scripts, compressed.
//!
//! Each has a folder with its source or its pinned origin, its licences and `build.sh`, which
//! builds the component from registry packages. The built component is checked in, so that a script
//! can be deployed offline. `docs/engines.md` describes engines.

mod built;

use std::io::{self, Read as _};

use built::{JS_BYTES, JS_SHA256, PYTHON_BYTES, PYTHON_SHA256};

/// A language engine that is carried.
#[derive(Clone, Copy, Debug)]
pub struct BundledRuntime {
    /// Name of the engine.
    pub name: &'static str,
    /// Extensions of the scripts that the engine runs, without the dot.
    pub extensions: &'static [&'static str],
    /// SHA-256 of the component, as 64 hexadecimal digits.
    pub sha256: &'static str,
    /// Size of the component in bytes.
    pub bytes: u64,
    compressed: &'static [u8],
}

/// JavaScript: QuickJS-ng and the web interfaces that servers have.
pub const JAVASCRIPT: BundledRuntime = BundledRuntime {
    name: "js",
    extensions: &["js", "mjs", "cjs", "jsx", "ts", "mts", "cts", "tsx"],
    sha256: JS_SHA256,
    bytes: JS_BYTES,
    compressed: include_bytes!("../js.wasm.zst"),
};

/// Python: CPython 3.14 with its library, WSGI and ASGI.
pub const PYTHON: BundledRuntime = BundledRuntime {
    name: "python",
    extensions: &["py"],
    sha256: PYTHON_SHA256,
    bytes: PYTHON_BYTES,
    compressed: include_bytes!("../python.wasm.zst"),
};

/// All carried engines.
pub const ALL: &[BundledRuntime] = &[JAVASCRIPT, PYTHON];

impl BundledRuntime {
    /// Unpacks the component, which takes some milliseconds.
    ///
    /// # Errors
    /// Returns an error if the component cannot be unpacked. A test unpacks the components that are
    /// checked in.
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
    fn bundled_runtimes_are_components() {
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

    const README: &str = include_str!("../README.md");

    fn file(path: &str) -> String {
        let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    #[test]
    fn each_third_party_part_has_its_licence_text() {
        let (_, table) = README.split_once("## What is in them of others").unwrap();
        let rows = table.lines().filter(|line| line.starts_with("| `"));
        let texts: Vec<&str> = rows
            .map(|row| {
                let (_, rest) = row.rsplit_once("](LICENSES/").unwrap();
                rest.split(')').next().unwrap()
            })
            .collect();
        for carried in ALL {
            assert!(table.contains(&format!("| `{}`", carried.name)));
        }
        for text in &texts {
            assert!(file(&format!("LICENSES/{text}")).len() > 500, "{text}");
        }
        // Each licence text in the folder is named in the table.
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/LICENSES");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(texts.contains(&name.as_str()), "{name}");
        }
        for beside in [
            "scripts/LICENSES/hono.txt",
            "scripts/LICENSES/itty-router.txt",
            "lua-engine.LICENSE.txt",
        ] {
            let text = file(&format!("../tests/fixtures/{beside}"));
            assert!(text.contains("Permission is hereby granted"), "{beside}");
        }
    }

    /// Every crate of the lock file is named with its version, whether it is linked or not.
    #[test]
    fn the_crates_licences_are_of_the_versions_that_are_locked() {
        let texts = file("LICENSES/js-crates.txt");
        let named: Vec<&str> = texts
            .lines()
            .flat_map(|line| line.trim_start_matches("Only to build it: ").split(", "))
            .collect();
        let lock = file("js/Cargo.lock");
        let mut packages = 0;
        for package in lock.split("[[package]]").skip(1) {
            let value = |key: &str| {
                let line = package.lines().find_map(|line| line.strip_prefix(key));
                line.unwrap().trim_matches('"').to_owned()
            };
            let crate_of = format!("{} {}", value("name = "), value("version = "));
            if !crate_of.starts_with("faasw-js-engine ") {
                assert!(named.contains(&crate_of.as_str()), "{crate_of}");
                packages += 1;
            }
        }
        assert!(packages > 50, "{packages}");
    }
}
