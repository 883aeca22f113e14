//! A registry's answers and the content of an artifact, which the program reads before a node
//! receives it.

use faasw_oci::Reference;
use faasw_oci::artifact::FilesLimits;
use faasw_oci::fuzzing::{challenge, files_in, manifest, module_in, token};

use crate::Target;

/// Bounds what an archive may need beside its unpacked content, whatever archive it is: names are
/// read whole, and zstd has its window.
pub const TARGET: Target = Target {
    name: "artifact",
    read,
    memory: 320 << 20,
    per_byte: 512,
    executions: 20_000,
};

const LIMITS: FilesLimits = FilesLimits {
    bytes: 4096,
    entries: 16,
};

fn read(bytes: &[u8]) -> bool {
    let Some((how, rest)) = bytes.split_first() else {
        return false;
    };
    match how {
        0 => manifest(rest),
        1 => challenge(rest),
        2 => token(rest),
        3 => {
            let text = String::from_utf8_lossy(rest);
            let Ok(reference) = text.parse::<Reference>() else {
                return false;
            };
            // The text of a reference parses to the same reference.
            let shown = reference.to_string();
            assert_eq!(shown.parse::<Reference>().as_ref(), Ok(&reference));
            assert!(!shown.contains(['@', '?', '#', ' ', '%']) || shown.contains("@sha256:"));
            true
        }
        4 => module_in(rest.to_vec(), LIMITS.bytes).is_some_and(|length| {
            assert!(length as u64 <= LIMITS.bytes);
            true
        }),
        _ => files_in(rest.to_vec(), LIMITS).is_some_and(|(count, bytes)| {
            assert!(count <= LIMITS.entries && bytes <= LIMITS.bytes);
            true
        }),
    }
}
