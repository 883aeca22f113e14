//! The owner of a folder's groups: names by which a process recognises its own groups, and those
//! that are left over.

use std::fs;
use std::io;

/// Returns the name of this process: the PID namespace, its number there, and its start time,
/// because numbers are reused.
pub(super) fn own_name() -> io::Result<String> {
    let number = rustix::process::getpid().as_raw_nonzero().get();
    let began = began(number).ok_or(io::ErrorKind::NotFound)?;
    Ok(format!("{}-{number}-{began}", own_namespace()?))
}

pub(super) fn own_namespace() -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

/// Whether the owner of a folder is alive. That is not known for folders of other programs or of
/// another namespace, and assumed. The name may be followed by the number of a jail's own group.
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

/// Returns the start time of a process, in the kernel's ticks (proc_pid_stat(5), fields 3 and 22);
/// `None` if it has ended, whether or not it was reaped.
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
        // Numbers of another namespace mean nothing here.
        assert!(is_alive(&format!("{}-2147483647-1", namespace + 1)));
        assert!(is_alive("somebody-elses") && is_alive("else"));
    }
}
