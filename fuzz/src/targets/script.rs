//! A script as a client sends it, as node and guest parse it.

use faasw_abi::script;

use crate::Target;

/// The smallest files are a path of one byte and no content. Each takes an entry of a list and of a
/// set of paths, which grow by doubling.
pub const TARGET: Target = Target {
    name: "script",
    read,
    memory: 4 << 10,
    per_byte: 64,
    executions: 50_000,
};

fn read(bytes: &[u8]) -> bool {
    let Ok(files) = script::read(bytes) else {
        return false;
    };
    assert!(!files.is_empty() && script::is_script(bytes));
    for (path, _) in &files {
        assert!(path.split('/').all(|part| !part.is_empty() && part != ".."));
    }
    // A script has one encoding only.
    assert_eq!(script::write(&files).as_deref(), Ok(bytes));
    true
}
