//! What is done in one step on the server, as scripts that it runs: nobody comes in between,
//! whichever node they are of.
//!
//! Each is sent by its digest, and whole only to a server that does not know it (after its restart,
//! say), which has done nothing by then. The first line says what Redis 7 looks at before it runs
//! one: a script without flags runs on no replica, and not while there is too little memory or its
//! disk fails; so what begins is done whole.

use std::sync::LazyLock;

use ::redis::Script;

/// Changes, which take memory.
const CHANGE: &str = "#!lua\n";

/// Removals, which give it back: they are done though there is none left.
const REMOVAL: &str = "#!lua flags=allow-oom\n";

/// Reads.
const READ: &str = "#!lua flags=no-writes\n";

const COMMON: &str = include_str!("scripts/common.lua");

/// All scripts.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) get: Script,
    pub(super) put: Script,
    /// `put` for keys that go alone.
    pub(super) remove: Script,
    pub(super) increment: Script,
    pub(super) swap: Script,
    pub(super) size: Script,
}

/// What this version of faasw runs.
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
