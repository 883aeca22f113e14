//! Seeds for a function's files: uploaded, packed, and in front of a module.

use faasw_abi::files::Kind;
use faasw_abi::files::upload::{Files, pack};

use super::Seed;

pub fn all() -> Vec<Seed> {
    let sent = files().into_bytes();
    let bundle = pack(&sent).unwrap_or_default();
    let as_it_is = |how: u8, bytes: &[u8]| [&[how], bytes].concat();
    vec![
        ("files", "sent", as_it_is(0, &sent)),
        ("files", "packed", as_it_is(1, &bundle)),
        ("files", "upload", as_it_is(2, &files().before(b"m"))),
    ]
}

fn files() -> Files {
    let mut files = Files::default();
    files.add(Kind::File, "lib/a.txt", b"a");
    files.add(Kind::Folder, "empty", b"");
    files.add(Kind::Link, "b", b"lib/a.txt");
    files
}
