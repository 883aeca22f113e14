//! Where this process's own file has what is compiled into the program.
//!
//! It is found by the list of what is mapped (proc_pid_maps(5)). Only the program's own file will
//! do: nobody can write to that while it runs (`ETXTBSY`, execve(2)).

use std::fs;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

/// Bytes of a file.
#[derive(Debug)]
pub struct Place {
    /// The file.
    pub by: OwnedFd,
    /// Where they begin.
    pub offset: u64,
    /// How many they are.
    pub bytes: u64,
}

/// Where this process's own file has `content`; nothing where that comes from elsewhere, or the
/// system does not say. Nothing of it is looked at.
pub fn place_of(content: &'static [u8]) -> Option<Place> {
    const OWN: &str = "/proc/self/exe";
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let by = rustix::fs::open(OWN, flags, Mode::empty()).ok()?;
    let inode = rustix::fs::fstat(&by).ok()?.st_ino;
    // Files of several disks may have one number; those do not have one name, too.
    let name = fs::read_link(OWN).ok()?;
    let name = name.to_str()?;
    let maps = fs::read("/proc/self/maps").ok()?;
    let maps = String::from_utf8_lossy(&maps);
    let start = content.as_ptr().addr() as u64;
    let bytes = content.len() as u64;
    let lines = maps.lines();
    let offset = lines.filter_map(Mapped::read).find_map(|mapped| {
        let is_its = mapped.inode == inode && mapped.name == name && mapped.is_unchanged;
        mapped.offset_of(start, bytes).filter(|_| is_its)
    })?;
    Some(Place { by, offset, bytes })
}

/// A line of the list.
#[derive(Debug, PartialEq, Eq)]
struct Mapped<'a> {
    start: u64,
    end: u64,
    /// Nobody can have written to it but to its file.
    is_unchanged: bool,
    offset: u64,
    inode: u64,
    name: &'a str,
}

impl<'a> Mapped<'a> {
    fn read(line: &'a str) -> Option<Self> {
        // A name may have spaces.
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let rights = fields.next()?;
        let offset = fields.next()?;
        let inode = fields.nth(1)?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(Self {
            start: number(start)?,
            end: number(end)?,
            is_unchanged: !rights.contains('w'),
            offset: number(offset)?,
            inode: inode.parse().ok()?,
            name: fields.next().unwrap_or_default().trim_start(),
        })
    }

    /// Where the file has so many bytes that are at this address, if all of them are here.
    fn offset_of(&self, start: u64, bytes: u64) -> Option<u64> {
        let before = start.checked_sub(self.start)?;
        let end = start.checked_add(bytes)?;
        (end <= self.end).then(|| self.offset.checked_add(before))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compiled_in_is_found_in_the_programs_own_file() {
        let place = place_of(faasw_bundled::COMPILER).unwrap();
        let mut found = vec![0; faasw_bundled::COMPILER.len()];
        let mut read = 0;
        while read < found.len() {
            let at = place.offset + read as u64;
            read += rustix::io::pread(&place.by, &mut found[read..], at).unwrap();
        }
        assert!(found == faasw_bundled::COMPILER);
    }

    #[test]
    fn what_is_elsewhere_is_not_found() {
        let mut copy = faasw_bundled::SANDBOX.to_vec();
        copy.shrink_to_fit();
        assert!(place_of(copy.leak()).is_none());
    }

    #[test]
    fn lines_are_as_the_system_writes_them() {
        let line = "7f0c4a000-7f0c4b800 r--p 00012000 fd:00 1234    /a folder/faasw (deleted)";
        let mapped = Mapped::read(line).unwrap();
        let expected = Mapped {
            start: 0x7_f0c4_a000,
            end: 0x7_f0c4_b800,
            is_unchanged: true,
            offset: 0x12000,
            inode: 1234,
            name: "/a folder/faasw (deleted)",
        };
        assert_eq!(mapped, expected);
        assert_eq!(mapped.offset_of(0x7_f0c4_a010, 0x17f0), Some(0x12010));
        assert_eq!(mapped.offset_of(0x7_f0c4_a010, 0x17f1), None);
        assert_eq!(mapped.offset_of(0x7_f0c4_9fff, 2), None);
        assert_eq!(mapped.offset_of(u64::MAX, 2), None);
        let private = Mapped::read("1000-2000 rw-p 0 fd:00 7 /x").unwrap();
        assert!(!private.is_unchanged);
        for senseless in ["", "1000 r--p 0 0 0", "x-2 r--p 0 0:0 0", "1-2 r--p 0 0:0"] {
            assert_eq!(Mapped::read(senseless), None, "{senseless}");
        }
    }
}
