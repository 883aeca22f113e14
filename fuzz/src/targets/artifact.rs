//! What a registry says, and what is in an artifact: by the program, before a node has it.

use faasw_oci::Reference;
use faasw_oci::artifact::FilesLimits;
use faasw_oci::fuzzing::{challenge, files_in, manifest, module_in, token};

use crate::Target;

/// Most that may be unpacked of an archive is what it may have beside, whoever packed it: names are
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
            // What is shown is the same again.
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
