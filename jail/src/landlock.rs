//! Landlock for a process that needs no file and no other process (landlock(7)).

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetError, Scope,
};
use rustix::io::Errno;

use crate::level::Network;

/// The newest interface with which this was tested. The kernel enforces as much of it as it
/// supports.
const VERSION: ABI = ABI::V6;

/// `LANDLOCK_CREATE_RULESET_VERSION`.
const ASK_VERSION: libc::c_uint = 1;

/// Whether this kernel has Landlock, and it is enabled.
#[must_use]
pub fn has_landlock() -> bool {
    version() > 0
}

/// Returns the version of the kernel's interface; negative if it has none.
fn version() -> i64 {
    let nothing = std::ptr::null::<u8>();
    // SAFETY: with this flag the call takes no structure and returns a number.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0, ASK_VERSION) }
}

/// Forbids the calling thread every file that it would open from now on, signals to processes
/// outside, and sockets of the abstract name space outside; in an empty network also TCP. Files
/// that are open stay usable. A kernel without Landlock does nothing. The thread must have
/// `no_new_privs`.
///
/// # Errors
/// Returns `PERM` if the kernel has Landlock and the rules cannot be applied.
pub(crate) fn forbid_all(network: Network) -> Result<(), Errno> {
    enforce(network).map_err(|_| Errno::PERM)
}

fn enforce(network: Network) -> Result<(), RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(VERSION))?
        .scope(Scope::from_all(VERSION))?;
    if network == Network::Empty {
        rules = rules.handle_access(AccessNet::from_all(VERSION))?;
    }
    rules.create()?.restrict_self().map(|_| ())
}

#[cfg(test)]
#[path = "landlock_tests.rs"]
mod tests;
