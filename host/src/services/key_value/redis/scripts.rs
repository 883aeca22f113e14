//! Scripts that the server runs, each in one step: no other command, of this or another node, runs
//! in between.
//!
//! A script is sent by its digest. Its text is sent only to a server that does not know it, for
//! example after a restart, and that has done nothing by then. The first line declares the flags
//! that Redis 7 checks before it runs a script. A script without flags does not run on a replica,
//! nor while memory is short or the server's disk fails. So a script that begins is executed
//! completely.

use std::sync::LazyLock;

use ::redis::Script;

/// First line of scripts that make changes, which take memory.
const CHANGE: &str = "#!lua\n";

/// First line of scripts that remove keys, which frees memory: they run even if none is left.
const REMOVAL: &str = "#!lua flags=allow-oom\n";

/// First line of scripts that read.
const READ: &str = "#!lua flags=no-writes\n";

const COMMON: &str = include_str!("scripts/common.lua");

#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) get: Script,
    pub(super) put: Script,
    /// `put` for removals only.
    pub(super) remove: Script,
    pub(super) increment: Script,
    pub(super) swap: Script,
    pub(super) size: Script,
}

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| {
    let change = |begin, own| Script::new(&[begin, COMMON, own].concat());
    let read = |own| Script::new(&[READ, own].concat());
    let put = include_str!("scripts/put.lua");
    Scripts {
        get: read(include_str!("scripts/get.lua")),
        put: change(CHANGE, put),
        remove: change(REMOVAL, put),
        increment: change(CHANGE, include_str!("scripts/increment.lua")),
        swap: change(CHANGE, include_str!("scripts/swap.lua")),
        size: read(include_str!("scripts/size.lua")),
    }
});
