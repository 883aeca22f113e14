//! The attacks that end differently at the reduced level than at the full one, without the filter.
//!
//! The threat model lists the same under "Reduced confinement".

use libc::{ENOENT, EPERM};

use super::attack::{Attack, Filter, Kernel};

const REFUSED: Kernel = Kernel::Refuses(&[EPERM]);
const LOST: Kernel = Kernel::LeavesItToTheFilter;
const TOO_LARGE: Kernel = Kernel::Ends(libc::SIGXFSZ);

/// Attacks that end differently, and how. At that level other processes have numbers: they are kept
/// apart by their users.
const OTHERWISE: [(&str, Kernel); 24] = [
    // The host's network, and its sockets of the abstract name space.
    ("connect-by-network", LOST),
    ("connect-by-name", LOST),
    // The empty folder is not read-only: nothing can be created in it, because it was removed.
    ("make-a-file", Kernel::Refuses(&[ENOENT])),
    ("trace-a-sibling", REFUSED),
    ("kill-a-sibling", REFUSED),
    // The kernel reports success, and no process ends.
    ("kill-everybody", LOST),
    ("read-a-siblings-memory", REFUSED),
    ("write-a-siblings-memory", REFUSED),
    // The existence of other processes is visible.
    ("watch-a-sibling", Kernel::Allows),
    ("read-a-siblings-clock", Kernel::Allows),
    ("take-a-siblings-descriptor", REFUSED),
    ("kill-a-siblings-thread", REFUSED),
    ("abort-a-sibling", REFUSED),
    ("kill-a-siblings-thread-by-the-old-call", REFUSED),
    ("tell-a-sibling", REFUSED),
    ("see-who-is-there", REFUSED),
    // The first process of a namespace ignores the signal of this limit; others end by it.
    ("grow-the-mailbox", TOO_LARGE),
    ("grow-the-mailbox-behind", TOO_LARGE),
    ("write-beyond-an-artifact", TOO_LARGE),
    ("grow-the-artifact", TOO_LARGE),
    ("grow-the-artifact-behind", TOO_LARGE),
    ("write-beyond-a-report", TOO_LARGE),
    // Children and shared memory outlive the process that made them.
    ("fork-bomb", LOST),
    ("share-memory", LOST),
];

/// Attacks on a limit that the kernel counts by user: it is not enforced if jails share a user.
const COUNTED_BY_USER: [&str; 1] = ["thread-bomb"];

/// Adapts an attack to the reduced level. Unless the maker `is_root`, only the filter is tested,
/// because all other results depend on the kernel's Landlock. `None` if the filter does not stop
/// the attack.
pub fn reduce(attack: Attack, is_root: bool) -> Option<Attack> {
    if is_root {
        return Some(reduce_of_root(attack));
    }
    let is_counted = COUNTED_BY_USER.contains(&attack.name);
    (!is_counted).then_some(match attack.filter {
        Filter::Passes => reduce_of_root(attack),
        _ => Attack {
            kernel: LOST,
            ..attack
        },
    })
}

fn reduce_of_root(attack: Attack) -> Attack {
    let mut otherwise = OTHERWISE.iter();
    match otherwise.find(|(name, _)| *name == attack.name) {
        // If a suite tests the attack only with its filter, that stays so.
        Some((_, kernel)) if attack.kernel != Kernel::LeavesItToTheFilter => Attack {
            kernel: *kernel,
            ..attack
        },
        _ => attack,
    }
}
