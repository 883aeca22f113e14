//! What an attack is.

use std::ffi::c_long;

/// What an attacker knows.
pub struct Scene {
    /// Another jail's process.
    pub sibling: i32,
    /// Name of a socket that somebody outside listens at.
    pub outside: String,
}

/// What the filter does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// It ends the process.
    Ends,
    /// It answers with this error in the kernel's place.
    #[allow(dead_code, reason = "not every jail's filter does that")]
    Answers(i32),
    /// It has the kernel decide.
    Passes,
}

/// What the kernel does about it where no filter does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// It answers with one of these.
    Refuses(&'static [i32]),
    /// It ends the process with this signal.
    #[allow(dead_code, reason = "not every jail has such an attack")]
    Ends(i32),
    /// It allows it, as to any unprivileged process.
    Allows,
    /// That depends on the host: it is not asked.
    LeavesItToTheFilter,
}

pub struct Attack {
    pub name: &'static str,
    pub filter: Filter,
    pub kernel: Kernel,
    /// Answers as the kernel does: negative for an error.
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

/// The filter ends it, and without one the kernel refuses it.
pub const fn forbidden(
    name: &'static str,
    errnos: &'static [i32],
    run: fn(&Scene) -> c_long,
) -> Attack {
    attack(name, (Filter::Ends, Kernel::Refuses(errnos)), run)
}

/// Only the filter has something against it: without one it succeeds.
pub const fn filter_only(name: &'static str, run: fn(&Scene) -> c_long) -> Attack {
    attack(name, (Filter::Ends, Kernel::Allows), run)
}

/// The filter ends it; what it would come to otherwise depends on the host.
pub const fn not_asked(name: &'static str, run: fn(&Scene) -> c_long) -> Attack {
    attack(name, (Filter::Ends, Kernel::LeavesItToTheFilter), run)
}

/// The filter cannot tell it from what is needed, and the kernel refuses it.
pub const fn refused(
    name: &'static str,
    errnos: &'static [i32],
    run: fn(&Scene) -> c_long,
) -> Attack {
    attack(name, (Filter::Passes, Kernel::Refuses(errnos)), run)
}

/// Makes a system call and answers as the kernel does.
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
