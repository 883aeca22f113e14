//! Whose groups a folder has: names by which a process knows its own, and those that
//! are left over.

use std::fs;
use std::io;

/// The namespace that a process's number is of, the number, and when it began: numbers
/// are used again.
pub(super) fn own_name() -> io::Result<String> {
    let number = rustix::process::getpid().as_raw_nonzero().get();
    let began = began(number).ok_or(io::ErrorKind::NotFound)?;
    Ok(format!("{}-{number}-{began}", own_namespace()?))
}

pub(super) fn own_namespace() -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

/// Of what is not ours, or of another namespace, nobody here can tell: then it lives. Behind the
/// name there may be the number of a jail's own group.
pub(super) fn is_alive(owner: &str) -> bool {
    let mut parts = owner.split('-').map(str::parse::<u64>);
    let (Some(Ok(namespace)), Some(Ok(number)), Some(Ok(began_at)), None | Some(Ok(_)), None) = (
        parts.next(),
        parts.next(),
        parts.next(),
        parts.next(),
        parts.next(),
    ) else {
        return true;
    };
    let number = i32::try_from(number).unwrap_or(i32::MAX);
    own_namespace().ok() != Some(namespace) || began(number) == Some(began_at)
}

/// When a process began, in the system's ticks (proc_pid_stat(5), fields 3 and 22);
/// `None` when it has ended, reaped or not.
fn began(number: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    let behind_name = stat.rsplit_once(')')?.1;
    let mut fields = behind_name.split_whitespace();
    let state = fields.next()?;
    let began = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(began)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_ended_processes_are_left_over() {
        let own = own_name().unwrap();
        assert!(is_alive(&own));
        assert!(!is_alive(&format!("{own}1")));
        let namespace = own_namespace().unwrap();
        assert!(!is_alive(&format!("{namespace}-2147483647-1")));
        assert!(is_alive(&format!("{own}-7")));
        assert!(!is_alive(&format!("{namespace}-2147483647-1-7")));
        assert!(is_alive(&format!("{namespace}-2147483647-1-7-1")));
        // Numbers of another namespace say nothing here.
        assert!(is_alive(&format!("{}-2147483647-1", namespace + 1)));
        assert!(is_alive("somebody-elses") && is_alive("else"));
    }
}
