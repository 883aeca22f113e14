//! A function's files: an upload from a client, which the compile helper packs, and a bundle, which
//! a guest reads.

use faasw_abi::files::bundle::{Bundle, EntryObject, Summary};
use faasw_abi::files::upload;

use crate::Target;

/// The smallest entries are a path of one byte. Each takes an entry among all, one among its
/// folder's names, and a record.
pub const TARGET: Target = Target {
    name: "files",
    read,
    memory: 64 << 10,
    per_byte: 512,
    executions: 30_000,
};

fn read(bytes: &[u8]) -> bool {
    let Some((how, rest)) = bytes.split_first() else {
        return false;
    };
    match how {
        0 => {
            let Ok(bundle) = upload::pack(rest) else {
                return false;
            };
            // The packed files are a valid bundle, and its summary is right.
            let summary = Summary::of(&bundle).map(|summary| summary.entries + 1);
            let read = Bundle::read(&bundle).map(|bundle| walk(&bundle));
            assert_eq!((read.is_ok(), summary), (true, read.ok()));
            true
        }
        1 => match Bundle::read(rest) {
            Ok(bundle) => {
                assert_eq!(walk(&bundle), bundle.count());
                true
            }
            Err(_) => false,
        },
        _ => {
            let split = upload::split(rest);
            split.is_ok_and(|parts| parts.is_some())
        }
    }
}

/// Walks through all folders, once each, and looks up each entry by its name. Returns how many
/// entries there are.
fn walk(bundle: &Bundle<'_>) -> u32 {
    let (mut folders, mut seen) = (vec![0], 1);
    while let Some(folder) = folders.pop() {
        let Some(EntryObject::Folder { first, count }) =
            bundle.entry(folder).map(|entry| entry.what)
        else {
            panic!("no folder");
        };
        for index in first..first + count {
            let entry = bundle.entry(index);
            let entry = entry.unwrap_or_else(|| panic!("no entry"));
            assert_eq!(
                (bundle.named(folder, entry.name), entry.parent),
                (Some(index), folder)
            );
            seen += 1;
            match entry.what {
                EntryObject::Folder { .. } => folders.push(index),
                EntryObject::File(_) | EntryObject::Link(_) => {}
            }
        }
    }
    seen
}
