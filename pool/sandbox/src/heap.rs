//! The heap of the spawner and of sandboxes: a fixed range of this program's own memory. Allocating
//! needs no system call, and nothing that a guest does makes a sandbox grow beyond the range.

use faasw_sandbox::process::exit_on_oom::ExitOnOom;
use spinning_top::RawSpinlock;
use talc::TalcLock;
use talc::source::Claim;

/// Bytes of the heap. A page takes memory once it is used.
const BYTES: usize = 8 << 20;

static mut HEAP: [u8; BYTES] = [0; BYTES];

// SAFETY: this allocator is the only user of the range.
#[global_allocator]
static ALLOCATOR: ExitOnOom<TalcLock<RawSpinlock, Claim>> =
    ExitOnOom(TalcLock::new(unsafe { Claim::array(&raw mut HEAP) }));
