//! The definition of an attack.

use std::ffi::c_long;

/// The information that an attacker has.
pub struct Scene {
    /// A process of a different jail.
    pub sibling: i32,
    /// The name of a socket at which a process outside listens.
    pub outside: String,
}

/// The filter's reaction to an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// The filter ends the process.
    Ends,
    /// The filter returns this error instead of the kernel.
    #[allow(dead_code, reason = "not every jail's filter does that")]
    Answers(i32),
    /// The filter lets the kernel decide.
    Passes,
}

/// The kernel's reaction to an attack that passes the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// The kernel returns one of these errors.
    Refuses(&'static [i32]),
    /// The kernel ends the process with this signal.
    #[allow(dead_code, reason = "not every jail has such an attack")]
    Ends(i32),
    /// The kernel allows the attack, as for any unprivileged process.
    Allows,
    /// The reaction depends on the host and is not tested.
    LeavesItToTheFilter,
}

pub struct Attack {
    pub name: &'static str,
    pub filter: Filter,
    pub kernel: Kernel,
    /// Returns the kernel's result: negative for an error.
    pub run: fn(&Scene) -> c_long,
}

const fn attack(
    name: &'static str,
    (filter, kernel): (Filter, Kernel),
    run: fn(&Scene) -> c_long,
) -> Attack {
    Attack {
        name,
        filter,
        kernel,
        run,
    }
}

/// Describes an attack that the filter ends, and that the kernel refuses without a filter.
pub const fn forbidden(
    name: &'static str,
    errnos: &'static [i32],
    run: fn(&Scene) -> c_long,
) -> Attack {
    attack(name, (Filter::Ends, Kernel::Refuses(errnos)), run)
}

/// Describes an attack that only the filter stops: without one it succeeds.
pub const fn filter_only(name: &'static str, run: fn(&Scene) -> c_long) -> Attack {
    attack(name, (Filter::Ends, Kernel::Allows), run)
}

/// Describes an attack that the filter ends; its result without a filter depends on the host.
pub const fn not_asked(name: &'static str, run: fn(&Scene) -> c_long) -> Attack {
    attack(name, (Filter::Ends, Kernel::LeavesItToTheFilter), run)
}

/// Describes an attack that the filter cannot distinguish from necessary calls, and that the kernel
/// refuses.
pub const fn refused(
    name: &'static str,
    errnos: &'static [i32],
    run: fn(&Scene) -> c_long,
) -> Attack {
    attack(name, (Filter::Passes, Kernel::Refuses(errnos)), run)
}

/// Makes a system call and returns the kernel's result: negative for an error.
macro_rules! call {
    ($number:ident $(, $argument:expr)* $(,)?) => {{
        // SAFETY: an attacker's call; what it points to lives, or is meant not to.
        let answer = unsafe { libc::syscall(libc::$number $(, $argument)*) };
        if answer < 0 {
            -c_long::from(std::io::Error::last_os_error().raw_os_error().unwrap())
        } else {
            answer
        }
    }};
}
pub(crate) use call;
