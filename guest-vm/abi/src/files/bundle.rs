//! A function's files as its guests use them: read-only, in place.
//!
//! ```text
//! bundle:   header, records, names, contents
//! header:   MAGIC (8), records (u32), bytes of names (u32), where contents begin (u64),
//!           bytes of all contents (u64)
//! record:   name at (u32), its length (u32), kind (u32), parent folder (u32),
//!           at (u64), length (u64)
//! ```
//!
//! Record 0 is the root folder. A folder's `at` and `length` are the first of its records and their
//! number; they are in the order of their names. A file's are the offset of its content, which
//! begins on a page, and its size. A link's are the position of its target among the names, and the
//! target's length.

use alloc::vec::Vec;

use super::{CONTENTS_MAX, ENTRIES_MAX, FilesError, Kind, PATH_MAX, is_name};
use crate::memory_map::PAGE;
use crate::wire::WireError;

/// First bytes of a bundle.
const MAGIC: [u8; 8] = *b"faasw-b\x01";

const HEADER: usize = 32;
const RECORD: usize = 32;

/// Maximum bytes of a bundle: all contents, padded to pages, records and names.
pub const BUNDLE_MAX: u64 = CONTENTS_MAX
    + ENTRIES_MAX as u64 * (PAGE + RECORD as u64)
    + NAMES_MAX
    + HEADER as u64
    + 2 * PAGE;

/// Maximum bytes of names and link targets.
const NAMES_MAX: u64 = ENTRIES_MAX as u64 * (PATH_MAX as u64 + super::NAME_MAX as u64);

/// The statements of a bundle about itself, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Number of files, folders and links, without the root folder.
    pub entries: u32,
    /// Bytes of all files together.
    pub contents: u64,
}

impl Summary {
    /// Returns the summary of a bundle, or `None` if it does not begin like one.
    #[must_use]
    pub fn of(bundle: &[u8]) -> Option<Self> {
        let header = Header::read(bundle)?;
        Some(Self {
            entries: header.records.saturating_sub(1),
            contents: header.contents,
        })
    }
}

struct Header {
    records: u32,
    names: u32,
    contents_at: u64,
    contents: u64,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER] = bytes.first_chunk()?;
        header.starts_with(&MAGIC).then_some(Self {
            records: word(header, 8)?,
            names: word(header, 12)?,
            contents_at: long(header, 16)?,
            contents: long(header, 24)?,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let long = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*long))
}

/// A bundle in construction: its contents in the order of its records.
#[derive(Debug, Default)]
pub(super) struct Packing<'a> {
    records: Vec<[u8; RECORD]>,
    names: Vec<u8>,
    contents: Vec<(usize, &'a [u8])>,
}

impl<'a> Packing<'a> {
    pub(super) fn file(&mut self, parent: usize, name: &str, content: &'a [u8]) {
        // The offset is set once all names are known.
        self.contents.push((self.records.len(), content));
        self.record(parent, name, Kind::File, 0, content.len() as u64);
    }

    pub(super) fn folder(&mut self, parent: usize, name: &str, first: usize, count: usize) {
        self.record(parent, name, Kind::Folder, first as u64, count as u64);
    }

    pub(super) fn link(&mut self, parent: usize, name: &str, target: &str) {
        let at = self.names.len();
        self.names.extend_from_slice(target.as_bytes());
        self.record(parent, name, Kind::Link, at as u64, target.len() as u64);
    }

    fn record(&mut self, parent: usize, name: &str, kind: Kind, at: u64, length: u64) {
        let words = [
            self.names.len() as u32,
            name.len() as u32,
            kind.number().into(),
            parent as u32,
        ];
        self.names.extend_from_slice(name.as_bytes());
        let mut record = [0; RECORD];
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        let longs = [at, length].into_iter().flat_map(u64::to_le_bytes);
        for (to, from) in record.iter_mut().zip(words.chain(longs)) {
            *to = from;
        }
        self.records.push(record);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let page = PAGE as usize;
        let index = HEADER + self.records.len() * RECORD + self.names.len();
        let contents_at = index.next_multiple_of(page);
        let mut at = contents_at;
        for (record, content) in &self.contents {
            if let Some(record) = self.records.get_mut(*record)
                && let Some(to) = record.get_mut(16..24)
            {
                to.copy_from_slice(&(at as u64).to_le_bytes());
            }
            at = (at + content.len()).next_multiple_of(page);
        }
        let all: usize = self.contents.iter().map(|(_, content)| content.len()).sum();
        let mut bundle = Vec::with_capacity(at);
        bundle.extend_from_slice(&MAGIC);
        bundle.extend_from_slice(&(self.records.len() as u32).to_le_bytes());
        bundle.extend_from_slice(&(self.names.len() as u32).to_le_bytes());
        bundle.extend_from_slice(&(contents_at as u64).to_le_bytes());
        bundle.extend_from_slice(&(all as u64).to_le_bytes());
        for record in &self.records {
            bundle.extend_from_slice(record);
        }
        bundle.extend_from_slice(&self.names);
        for (_, content) in &self.contents {
            bundle.resize(bundle.len().next_multiple_of(page), 0);
            bundle.extend_from_slice(content);
        }
        bundle.resize(at, 0);
        bundle
    }
}

/// An entry of the index.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Name of the entry.
    pub name: &'a str,
    /// The folder that contains it; the root folder's is the root folder itself.
    pub parent: u32,
    /// The object itself.
    pub what: EntryObject<'a>,
}

/// The object of an entry.
#[derive(Clone, Copy, Debug)]
pub enum EntryObject<'a> {
    /// A file with this content.
    File(&'a [u8]),
    /// A folder, whose entries are consecutive.
    Folder {
        /// Index of the first entry.
        first: u32,
        /// Number of entries.
        count: u32,
    },
    /// A link with this target.
    Link(&'a str),
}

/// A bundle that was checked against its rules.
#[derive(Clone, Copy, Debug)]
pub struct Bundle<'a> {
    bytes: &'a [u8],
    records: u32,
    names: &'a [u8],
}

impl<'a> Bundle<'a> {
    /// Checks bytes as a bundle, record by record.
    ///
    /// # Errors
    /// Returns the [`FilesError`] of the violated rule if a record or a length is invalid.
    pub fn read(bytes: &'a [u8]) -> Result<Self, FilesError> {
        let header = Header::read(bytes).ok_or(WireError::BadValue)?;
        if !(1..=ENTRIES_MAX + 1).contains(&(header.records as usize)) {
            return Err(FilesError::TooMany);
        }
        let names_at = HEADER + header.records as usize * RECORD;
        let names_end = names_at.saturating_add(header.names as usize);
        let names = bytes.get(names_at..names_end).ok_or(WireError::Truncated)?;
        let bundle = Self {
            bytes,
            records: header.records,
            names,
        };
        let is_sound = header.contents_at >= names_end as u64
            && header.contents_at <= bytes.len() as u64
            && (0..header.records).all(|index| bundle.is_sound(index, &header));
        let mut contents = 0_u64;
        for index in 0..header.records {
            if let Some(EntryObject::File(content)) = bundle.entry(index).map(|entry| entry.what) {
                contents = contents.saturating_add(content.len() as u64);
            }
        }
        if !is_sound || contents != header.contents {
            return Err(WireError::BadValue.into());
        }
        if contents > CONTENTS_MAX {
            return Err(FilesError::TooLarge);
        }
        Ok(bundle)
    }

    /// Returns whether an entry is in the folder that it names, and a folder's entries are behind
    /// it, in order. So no folder contains itself.
    fn is_sound(&self, index: u32, header: &Header) -> bool {
        let (Some(entry), Some(record)) = (self.entry(index), self.record(index)) else {
            return false;
        };
        if (index == 0) != (entry.name.is_empty()) || index > 0 && !is_name(entry.name) {
            return false;
        }
        let is_in_its_folder = match self.entry(entry.parent).map(|parent| parent.what) {
            Some(EntryObject::Folder { first, count }) => match index {
                0 => entry.parent == 0,
                _ => entry.parent < index && index >= first && index - first < count,
            },
            _ => false,
        };
        is_in_its_folder
            && match entry.what {
                EntryObject::File(_) => {
                    let at = long(record, 16).unwrap_or_default();
                    at >= header.contents_at && at.is_multiple_of(PAGE)
                }
                EntryObject::Link(target) => !target.is_empty() && target.len() <= PATH_MAX,
                EntryObject::Folder { first, count } => {
                    let Some(end) = first.checked_add(count) else {
                        return false;
                    };
                    let children = || (first..end).map(|child| self.entry(child));
                    end <= self.records
                        && (count == 0 || first > index)
                        && children().all(|child| child.is_some_and(|one| one.parent == index))
                        && children().is_sorted_by(|one, next| {
                            one.map(|one| one.name) < next.map(|next| next.name)
                        })
                }
            }
    }

    /// Returns the number of entries, including the root folder.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.records
    }

    fn record(&self, index: u32) -> Option<&'a [u8; RECORD]> {
        if index >= self.records {
            return None;
        }
        let at = HEADER + index as usize * RECORD;
        self.bytes.get(at..)?.first_chunk()
    }

    /// Returns the entry with this index.
    #[must_use]
    pub fn entry(&self, index: u32) -> Option<Entry<'a>> {
        let record = self.record(index)?;
        let name = self.text(word(record, 0)?.into(), word(record, 4)?.into())?;
        let (at, length) = (long(record, 16)?, long(record, 24)?);
        let kind = u8::try_from(word(record, 8)?).ok().and_then(Kind::of)?;
        let what = match kind {
            Kind::File => {
                let at = usize::try_from(at).ok()?;
                let end = at.checked_add(usize::try_from(length).ok()?)?;
                EntryObject::File(self.bytes.get(at..end)?)
            }
            Kind::Folder => EntryObject::Folder {
                first: u32::try_from(at).ok()?,
                count: u32::try_from(length).ok()?,
            },
            Kind::Link => EntryObject::Link(self.text(at, length)?),
        };
        Some(Entry {
            name,
            parent: word(record, 12)?,
            what,
        })
    }

    fn text(&self, at: u64, length: u64) -> Option<&'a str> {
        let at = usize::try_from(at).ok()?;
        let end = at.checked_add(usize::try_from(length).ok()?)?;
        core::str::from_utf8(self.names.get(at..end)?).ok()
    }

    /// Returns the index of the entry with this name in a folder.
    #[must_use]
    pub fn named(&self, folder: u32, name: &str) -> Option<u32> {
        let EntryObject::Folder { first, count } = self.entry(folder)?.what else {
            return None;
        };
        let (mut low, mut high) = (first, first.checked_add(count)?);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.entry(middle)?.name.cmp(name) {
                core::cmp::Ordering::Less => low = middle + 1,
                core::cmp::Ordering::Greater => high = middle,
                core::cmp::Ordering::Equal => return Some(middle),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::upload::{Files, pack};
    use super::*;
    use alloc::vec;

    fn packed() -> Vec<u8> {
        let mut files = Files::default();
        files.add(Kind::File, "b/one", &[7; 5000]);
        files.add(Kind::File, "b/two", b"2");
        files.add(Kind::Folder, "a", b"");
        files.add(Kind::Link, "c", b"b/one");
        pack(&files.into_bytes()).unwrap()
    }

    #[test]
    fn contents_begin_on_pages() {
        let bytes = packed();
        let bundle = Bundle::read(&bytes).unwrap();
        assert_eq!(bundle.count(), 6);
        let summary = Summary {
            entries: 5,
            contents: 5001,
        };
        assert_eq!(Summary::of(&bytes), Some(summary));
        assert_eq!(bytes.len(), 4 * PAGE as usize);
        for index in 0..bundle.count() {
            if let EntryObject::File(content) = bundle.entry(index).unwrap().what {
                let at = content.as_ptr() as usize - bytes.as_ptr() as usize;
                assert_eq!(at % PAGE as usize, 0);
            }
        }
    }

    /// After any change in the index, a bundle is refused, or still has folders that can be walked.
    #[test]
    fn a_bundle_that_lies_is_refused_or_harmless() {
        let bytes = packed();
        let index = HEADER + 6 * RECORD + 30;
        let mut refused = 0;
        for at in 0..index {
            for value in [0, 1, 0x7f, 0xff] {
                let mut other = bytes.clone();
                other[at] = value;
                match Bundle::read(&other) {
                    Err(_) => refused += 1,
                    Ok(bundle) => {
                        let mut seen = vec![0];
                        while let Some(next) = seen.pop() {
                            let entry = bundle.entry(next).unwrap();
                            if let EntryObject::Folder { first, count } = entry.what {
                                assert!(count == 0 || first > next);
                                seen.extend(first..first + count);
                            }
                        }
                    }
                }
            }
        }
        assert!(refused > index, "{refused}");
        for end in 0..HEADER + 6 * RECORD {
            assert!(Bundle::read(&bytes[..end]).is_err(), "{end}");
        }
    }
}
