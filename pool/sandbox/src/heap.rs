//! The heap of spawner and sandboxes: a fixed range of this program's own memory, so
//! that no system call is needed to allocate, and nothing that a guest does makes a
//! sandbox grow beyond it.

use faasw_sandbox::process::ending::Ending;
use spinning_top::RawSpinlock;
use talc::TalcLock;
use talc::source::Claim;

/// Bytes of the heap; pages exist once they are used.
const BYTES: usize = 8 << 20;

static mut HEAP: [u8; BYTES] = [0; BYTES];

// SAFETY: the range has this one user.
#[global_allocator]
static ALLOCATOR: Ending<TalcLock<RawSpinlock, Claim>> =
    Ending(TalcLock::new(unsafe { Claim::array(&raw mut HEAP) }));
