//! The identity and the privileges of a process, and giving them up.

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Gid, Signal, Uid};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use crate::level::ConfinementLevel;

/// The privileges for giving each jail a user of its own, beyond those that an unprivileged process
/// gets in a user namespace.
const PRIVILEGES: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP);

/// The privileges for that at the reduced level: jails enter the empty root by `chroot`, and their
/// maker ends processes of other users. Root in a Docker container has all of these.
const PRIVILEGES_REDUCED: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::KILL);

/// Numbers above all that systems assign to users, services and containers (systemd's list of
/// ranges has nothing from here to 2^31).
const UIDS: std::ops::Range<u32> = 1_879_048_192..2_147_483_648;

/// The block of numbers that each process that makes jails has for itself, if there are enough.
const BLOCK: u32 = 16_384;

/// The user and group numbers of jails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identities {
    first: u32,
    count: u32,
}

impl Identities {
    /// Returns the numbers for the process with this number, if it has the privileges for them at
    /// this level.
    pub fn available(process: u32, level: ConfinementLevel) -> Option<Self> {
        let held = rustix::thread::capabilities(None).ok()?.effective;
        let needed = match level {
            ConfinementLevel::Full => PRIVILEGES,
            ConfinementLevel::Reduced => PRIVILEGES_REDUCED,
        };
        if !held.contains(needed) {
            return None;
        }
        let users = mapped("/proc/self/uid_map")?;
        let groups = mapped("/proc/self/gid_map")?;
        // If groups cannot be dropped, a process cannot become another user.
        let setgroups = std::fs::read_to_string("/proc/self/setgroups").ok()?;
        if setgroups.trim() != "allow" {
            return None;
        }
        Self::within(
            process,
            users.start.max(groups.start)..users.end.min(groups.end),
        )
    }

    /// Returns a block within `mapped`, chosen by the process's number: outside the numbers in use
    /// if `mapped` reaches that far, and otherwise at its upper end. `None` if there are too few
    /// numbers for each living jail to have its own.
    fn within(process: u32, mapped: std::ops::Range<u32>) -> Option<Self> {
        let usual = UIDS.start.max(mapped.start)..UIDS.end.min(mapped.end);
        if usual.len() >= BLOCK as usize {
            let blocks = (usual.end - usual.start) / BLOCK;
            return Some(Self {
                first: usual.start + (process % blocks) * BLOCK,
                count: BLOCK,
            });
        }
        // The upper end of a container's numbers.
        (mapped.len() >= 2 * BLOCK as usize).then(|| Self {
            first: mapped.end - BLOCK,
            count: BLOCK,
        })
    }

    /// Returns two numbers, for [`Identities::from_numbers`].
    pub fn numbers(self) -> [u32; 2] {
        [self.first, self.count]
    }

    /// Parses the result of [`Identities::numbers`]; `None` for numbers that it never returns.
    pub fn from_numbers([first, count]: [u32; 2]) -> Option<Self> {
        (count > 0).then_some(Self { first, count })
    }

    fn number(self, jail: u32) -> u32 {
        self.first + jail % self.count
    }

    /// Becomes the user of this jail, and keeps its capabilities for now.
    pub fn take(self, jail: u32) -> Result<(), Errno> {
        let number = self.number(jail);
        let (user, group) = (Uid::from_raw(number), Gid::from_raw(number));
        rustix::thread::set_keep_capabilities(true)?;
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(group, group, group)?;
        rustix::thread::set_thread_res_uid(user, user, user)?;
        let mut sets = rustix::thread::capabilities(None)?;
        sets.effective = sets.permitted;
        rustix::thread::set_capabilities(None, sets)
    }
}

/// Returns the last range of numbers in this user namespace (user_namespaces(7)).
fn mapped(map: &str) -> Option<std::ops::Range<u32>> {
    let text = std::fs::read_to_string(map).ok()?;
    text.lines().filter_map(range).max_by_key(|range| range.end)
}

fn range(line: &str) -> Option<std::ops::Range<u32>> {
    let mut numbers = line.split_whitespace().map(str::parse::<u32>);
    let (Some(Ok(inside)), Some(Ok(_)), Some(Ok(count))) =
        (numbers.next(), numbers.next(), numbers.next())
    else {
        return None;
    };
    Some(inside..inside.checked_add(count)?)
}

/// Makes the capabilities of this process survive the execution of another program, for a user that
/// is not root.
pub fn keep_through_execution() -> Result<(), Errno> {
    let mut sets = rustix::thread::capabilities(None)?;
    sets.inheritable = sets.permitted;
    rustix::thread::set_capabilities(None, sets)?;
    sets.permitted.iter().try_for_each(|capability| {
        rustix::thread::configure_capability_in_ambient_set(capability, true)
    })
}

/// Calls `act` without any privilege, and restores the privileges afterwards. For as long as a file
/// is open, the kernel checks the privileges with which it was opened.
///
/// # Errors
/// Returns an error if the privileges cannot be put away or restored.
pub fn without_privilege<T>(act: impl FnOnce() -> T) -> Result<T, Errno> {
    let held = rustix::thread::capabilities(None)?;
    let mut sets = held;
    sets.effective = CapabilitySet::empty();
    rustix::thread::set_capabilities(None, sets)?;
    let done = act();
    rustix::thread::set_capabilities(None, held)?;
    Ok(done)
}

/// Gives up the privileges that a daemon no longer needs when another process makes its jails: all
/// capabilities except those of `kept` that it has, and every way to get one. Other processes of
/// its user can no longer inspect it. The calling process must have one thread, because other
/// threads would keep their privileges.
///
/// # Errors
/// Returns the kernel's error.
pub fn confine_daemon(kept: CapabilitySet) -> Result<(), Errno> {
    let held = rustix::thread::capabilities(None)?;
    // An unprivileged process cannot do this, and gets nothing by executing a program: see below.
    if held.effective.contains(CapabilitySet::SETPCAP) {
        empty_bounding_set()?;
        lock_securebits()?;
    }
    keep_only(held.permitted.intersection(kept))
}

/// Gives up all other capabilities, and the inspection of this process by others of its user. A
/// program that this process executes gets no capability.
fn keep_only(kept: CapabilitySet) -> Result<(), Errno> {
    rustix::thread::clear_ambient_capability_set()?;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)?;
    rustix::thread::set_no_new_privs(true)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
}

fn empty_bounding_set() -> Result<(), Errno> {
    CapabilitySet::all().iter().try_for_each(|capability| {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // The kernel does not know this capability.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(errno),
        }
    })
}

fn lock_securebits() -> Result<(), Errno> {
    rustix::thread::set_capabilities_secure_bits(
        CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED,
    )
}

/// Gives up every capability, and every way to get one.
pub fn drop_all() -> Result<(), Errno> {
    empty_bounding_set()?;
    lock_securebits()?;
    keep_only(CapabilitySet::empty())
}

/// Makes the kernel kill this process when the thread that made it ends.
pub fn die_with_parent() -> Result<(), Errno> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_lie_within_mapped_user_ids() {
        let whole = Identities::within(70_000, 0..u32::MAX).unwrap();
        assert!(UIDS.contains(&whole.first) && UIDS.contains(&(whole.number(BLOCK - 1))));
        assert_eq!((whole.first - UIDS.start) % BLOCK, 0);
        let next = Identities::within(70_001, 0..u32::MAX).unwrap();
        assert_ne!(whole.first, next.first);
        let few = Identities::within(70_000, 0..65_536).unwrap();
        assert_eq!((few.first, few.count), (65_536 - BLOCK, BLOCK));
        // Jails would share numbers.
        assert_eq!(Identities::within(3, 0..1), None);
        assert_eq!(Identities::within(3, 0..BLOCK), None);
    }

    #[test]
    fn id_maps_are_parsed() {
        assert_eq!(range("         0          0 4294967295"), Some(0..u32::MAX));
        assert_eq!(range("0 100000 65536"), Some(0..65_536));
        assert_eq!(range("4294967295 0 2"), None);
        assert_eq!(range("nonsense"), None);
    }
}
