//! Finding the position of compiled-in programs in this process's own executable file.
//!
//! The position is found in the list of mappings (proc_pid_maps(5)). Only the program's own file is
//! accepted: it cannot be written while it runs (`ETXTBSY`, execve(2)).

use std::fs;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

/// A range of bytes in a file.
#[derive(Debug)]
pub struct FileRange {
    /// The file.
    pub file: OwnedFd,
    /// Where the range begins.
    pub offset: u64,
    /// The length of the range.
    pub bytes: u64,
}

/// Returns the position of `content` in this process's own file, without reading it. Returns `None`
/// if it is not mapped from there, or if the kernel does not report it.
pub fn locate(content: &'static [u8]) -> Option<FileRange> {
    const OWN: &str = "/proc/self/exe";
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(OWN, flags, Mode::empty()).ok()?;
    let inode = rustix::fs::fstat(&file).ok()?.st_ino;
    // Files on different disks may have the same inode number; their names differ.
    let name = fs::read_link(OWN).ok()?;
    let name = name.to_str()?;
    let maps = fs::read("/proc/self/maps").ok()?;
    let maps = String::from_utf8_lossy(&maps);
    let start = content.as_ptr().addr() as u64;
    let bytes = content.len() as u64;
    let lines = maps.lines();
    let offset = lines.filter_map(MappingLine::read).find_map(|mapped| {
        let is_its = mapped.inode == inode && mapped.name == name && mapped.is_unchanged;
        mapped.offset_of(start, bytes).filter(|_| is_its)
    })?;
    Some(FileRange {
        file,
        offset,
        bytes,
    })
}

/// A line of the list of mappings.
#[derive(Debug, PartialEq, Eq)]
struct MappingLine<'a> {
    start: u64,
    end: u64,
    /// Whether the mapping is not writable, so that it still equals the file.
    is_unchanged: bool,
    offset: u64,
    inode: u64,
    name: &'a str,
}

impl<'a> MappingLine<'a> {
    fn read(line: &'a str) -> Option<Self> {
        // A name may contain spaces.
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

    /// Returns the offset in the file of `bytes` bytes at this address, if all of them are in this
    /// mapping.
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
    fn embedded_programs_are_found_in_the_own_file() {
        let range = locate(faasw_bundled::COMPILER).unwrap();
        let mut found = vec![0; faasw_bundled::COMPILER.len()];
        let mut read = 0;
        while read < found.len() {
            let at = range.offset + read as u64;
            read += rustix::io::pread(&range.file, &mut found[read..], at).unwrap();
        }
        assert!(found == faasw_bundled::COMPILER);
    }

    #[test]
    fn bytes_on_the_heap_are_not_found_in_the_own_file() {
        let mut copy = faasw_bundled::SANDBOX.to_vec();
        copy.shrink_to_fit();
        assert!(locate(copy.leak()).is_none());
    }

    #[test]
    fn lines_of_the_list_of_mappings_are_parsed() {
        let line = "7f0c4a000-7f0c4b800 r--p 00012000 fd:00 1234    /a folder/faasw (deleted)";
        let mapped = MappingLine::read(line).unwrap();
        let expected = MappingLine {
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
        let private = MappingLine::read("1000-2000 rw-p 0 fd:00 7 /x").unwrap();
        assert!(!private.is_unchanged);
        for senseless in ["", "1000 r--p 0 0 0", "x-2 r--p 0 0:0 0", "1-2 r--p 0 0:0"] {
            assert_eq!(MappingLine::read(senseless), None, "{senseless}");
        }
    }
}
