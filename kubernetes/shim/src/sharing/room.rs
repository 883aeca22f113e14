//! Eviction: selects the entries to remove so that there is room for another one. The store has a
//! limited part of its disk, and each namespace a limited part of the store.

use std::{collections::BTreeMap, io, path::Path};

use serde::Deserialize;

/// The store may use one part in so many of its file system.
const OF_DISK: u64 = 10;

/// One part in so many of the disk stays free for others: kubelet sees a disk as full when less
/// than one part in ten is free.
const FREE: u64 = 5;

/// A namespace may use one part in so many of the store.
const OF_STORE: u64 = 4;

/// Maximum number of entries with one namespace, name and module, which differ in their options.
const OF_FUNCTION: usize = 4;

/// Seconds for which an entry stays after it was given to a pod, which may not have mounted it yet.
const GIVEN: u64 = 120;

/// Seconds after its last entry in which a function with [`OF_FUNCTION`] entries gets no further
/// one. If the options differ at each start, as with a variable that has the pod's address, no pod
/// would ever find the entry.
const AGAIN: u64 = 600;

/// An entry, as `share ls` lists it.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    /// The entry's name.
    pub entry: String,
    /// The entry's namespace.
    pub namespace: String,
    /// The size of the whole entry in bytes.
    pub bytes: u64,
    /// The function's name.
    pub name: Option<String>,
    /// The digest of the module.
    pub upload: Option<String>,
    /// The time at which the entry was made, in seconds since 1970.
    pub made: Option<u64>,
    /// The reason why no pod finds the entry, if that is so.
    pub unused: Option<String>,
    /// The time at which the entry was last given to a pod, or made, in seconds since 1970.
    /// `share ls` does not report it.
    #[serde(default)]
    pub used: u64,
}

/// The size of a disk.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// The size in bytes.
    pub size: u64,
    /// The free bytes.
    pub free: u64,
}

impl Disk {
    /// Returns the size of the disk that holds a folder.
    ///
    /// # Errors
    /// Returns the error of `statvfs`.
    pub fn of(folder: &Path) -> io::Result<Self> {
        let found = rustix::fs::statvfs(folder)?;
        Ok(Self {
            size: found.f_blocks.saturating_mul(found.f_frsize),
            free: found.f_bavail.saturating_mul(found.f_frsize),
        })
    }

    /// Returns whether the free part has to be left to others.
    #[must_use]
    pub fn is_nearly_full(&self) -> bool {
        self.free < self.size / FREE
    }
}

/// The entry for which room is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// The function's name.
    pub name: &'a str,
    /// The digest of the module.
    pub upload: &'a str,
    /// The current time, in seconds since 1970.
    pub now: u64,
}

/// Returns the entries to remove for a new one.
///
/// # Errors
/// Returns the reason if there is no room even after removals.
pub fn room<'a>(
    rows: &'a [Row],
    disk: Disk,
    wanted: Wanted<'_>,
) -> Result<Vec<&'a Row>, &'static str> {
    let is_own = |row: &Row| row.namespace == wanted.namespace;
    let is_same = |row: &Row| {
        is_own(row)
            && row.name.as_deref() == Some(wanted.name)
            && row.upload.as_deref() == Some(wanted.upload)
    };
    let mut entries = Entries::new(rows, wanted.now);
    let same = rows
        .iter()
        .filter(|row| is_same(row) && row.unused.is_none());
    let last = same.clone().filter_map(|row| row.made).max();
    if same.count() >= OF_FUNCTION {
        let age = last.and_then(|last| wanted.now.checked_sub(last));
        if age.is_some_and(|age| age < AGAIN) {
            return Err("it has other options again and again");
        }
        entries.lose(is_same);
    }
    let most = disk.size / OF_DISK;
    while entries.bytes(is_own) > most / OF_STORE {
        if !entries.lose(is_own) {
            return Err("its namespace has its part of the store");
        }
    }
    while entries.bytes(|_| true) > most {
        if !entries.lose_of_largest() {
            return Err("the store has its part of the disk");
        }
    }
    let is_nearly_full = |gone: &[&Row]| {
        let free = disk.free.saturating_add(bytes(gone));
        Disk { free, ..disk }.is_nearly_full()
    };
    while is_nearly_full(&entries.gone) {
        if !entries.lose_of_largest() {
            return Err("less than a fifth of its disk is free");
        }
    }
    Ok(entries.gone)
}

/// Returns whether a new entry is larger than the part of its namespace, or leaves the disk nearly
/// full.
#[must_use]
pub fn is_too_large(bytes: u64, disk: Disk) -> bool {
    bytes > disk.size / OF_DISK / OF_STORE || disk.is_nearly_full()
}

/// The entries during a selection.
struct Entries<'a> {
    /// Entries that can be removed, in the order of removal.
    left: Vec<&'a Row>,
    /// Entries that a pod may be about to mount.
    given: Vec<&'a Row>,
    gone: Vec<&'a Row>,
}

impl<'a> Entries<'a> {
    fn new(rows: &'a [Row], now: u64) -> Self {
        let is_given = |row: &&Row| {
            let age = now.checked_sub(row.used);
            row.unused.is_none() && age.is_some_and(|age| age < GIVEN)
        };
        let (given, mut left): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(is_given);
        // Entries that no pod finds come first, then those not used for longest.
        left.sort_by_key(|row| (row.unused.is_none(), row.used));
        Self {
            left,
            given,
            gone: Vec::new(),
        }
    }

    /// Removes the first matching entry. Returns whether there was one.
    fn lose(&mut self, is_meant: impl Fn(&Row) -> bool) -> bool {
        let next = self.left.iter().position(|row| is_meant(row));
        self.gone.extend(next.map(|at| self.left.remove(at)));
        next.is_some()
    }

    /// Removes an entry of the namespace that uses most. So a namespace cannot displace smaller
    /// ones by its own size.
    fn lose_of_largest(&mut self) -> bool {
        let mut namespaces: BTreeMap<&str, u64> = BTreeMap::new();
        for row in &self.left {
            *namespaces.entry(&row.namespace).or_default() += row.bytes;
        }
        let largest = namespaces.into_iter().max_by_key(|(_, bytes)| *bytes);
        largest.is_some_and(|(namespace, _)| self.lose(|row| row.namespace == namespace))
    }

    fn bytes(&self, is_meant: impl Fn(&Row) -> bool) -> u64 {
        let there = self.left.iter().chain(&self.given).copied();
        let meant: Vec<_> = there.filter(|row| is_meant(row)).collect();
        bytes(&meant)
    }
}

fn bytes(rows: &[&Row]) -> u64 {
    rows.iter().map(|row| row.bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(entry: &str, namespace: &str, bytes: u64, made: u64) -> Row {
        Row {
            entry: entry.to_owned(),
            namespace: namespace.to_owned(),
            bytes,
            name: Some("hello".to_owned()),
            upload: Some(format!("of {entry}")),
            made: Some(made),
            unused: None,
            used: made,
        }
    }

    const DISK: Disk = Disk {
        size: 1000,
        free: 500,
    };

    fn goes(rows: &[Row], disk: Disk) -> Result<Vec<&str>, &'static str> {
        let wanted = Wanted {
            namespace: "own",
            name: "hello",
            upload: "module",
            now: 10_000,
        };
        let gone = room(rows, disk, wanted)?;
        Ok(gone.iter().map(|row| row.entry.as_str()).collect())
    }

    #[test]
    fn as_long_as_there_is_room_nothing_goes() {
        let rows = [row("a", "own", 25, 1), row("b", "other", 75, 2)];
        assert_eq!(goes(&rows, DISK), Ok(vec![]));
        assert_eq!(goes(&[], DISK), Ok(vec![]));
    }

    #[test]
    fn a_namespace_that_takes_more_than_its_part_loses_its_own() {
        let rows = [
            row("old", "other", 20, 0),
            row("a", "own", 20, 2),
            row("b", "own", 20, 1),
        ];
        assert_eq!(goes(&rows, DISK), Ok(vec!["b"]));
    }

    #[test]
    fn what_nobody_finds_goes_first_and_then_the_oldest() {
        let mut rows = [
            row("a", "x", 20, 3),
            row("b", "x", 60, 1),
            row("c", "x", 60, 2),
        ];
        rows[0].unused = Some("another build".to_owned());
        assert_eq!(goes(&rows, DISK), Ok(vec!["a", "b"]));
    }

    #[test]
    fn who_has_most_loses_first() {
        let rows = [
            row("a", "x", 20, 1),
            row("b", "y", 60, 3),
            row("c", "y", 40, 2),
        ];
        assert_eq!(goes(&rows, DISK), Ok(vec!["c"]));
        let full = Disk { free: 150, ..DISK };
        assert_eq!(goes(&rows, full), Ok(vec!["c", "b"]));
    }

    #[test]
    fn what_was_just_given_to_a_pod_stays() {
        let mut rows = [row("a", "x", 60, 1), row("b", "x", 60, 2)];
        rows[0].used = 9_900;
        assert_eq!(goes(&rows, DISK), Ok(vec!["b"]));
        rows[1].used = 9_999;
        assert!(goes(&rows, DISK).is_err());
        // The clock was set back.
        rows[1].used = 20_000;
        assert_eq!(goes(&rows, DISK), Ok(vec!["b"]));
    }

    #[test]
    fn a_disk_that_is_nearly_full_is_left_to_others() {
        let rows = [row("a", "x", 40, 1), row("b", "x", 40, 2)];
        let nearly = Disk { free: 170, ..DISK };
        assert_eq!(goes(&rows, nearly), Ok(vec!["a"]));
        assert!(goes(&rows, Disk { free: 0, ..DISK }).is_err());
        assert!(goes(&[], Disk { free: 199, ..DISK }).is_err());
        assert!(goes(&[], Disk { size: 0, free: 0 }).is_ok());
        assert!(is_too_large(26, DISK) && !is_too_large(25, DISK));
        assert!(is_too_large(1, Disk { free: 199, ..DISK }));
    }

    #[test]
    fn a_function_with_other_options_each_time_is_not_made_again_and_again() {
        let same = |entry: &str, made| Row {
            upload: Some("module".to_owned()),
            ..row(entry, "own", 1, made)
        };
        let mut rows: Vec<Row> = (1..=4).map(|at| same(&at.to_string(), at)).collect();
        assert_eq!(goes(&rows, DISK), Ok(vec!["1"]));
        rows[3].made = Some(9_500);
        assert!(goes(&rows, DISK).is_err());
        rows[3].made = Some(20_000);
        assert!(goes(&rows, DISK).is_ok(), "somebody has set the clock");
        rows[3].made = Some(9_500);
        rows[3].unused = Some("another build".to_owned());
        assert_eq!(goes(&rows, DISK), Ok(vec![]));
    }
}
