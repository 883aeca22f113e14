//! Which entries go so that there is room for another one: the store has a part of its disk at most, and a namespace a part of
//! that.

use serde::Deserialize;

/// Of its file system the store has one in so many bytes; as many stay free for others.
const OF_DISK: u64 = 10;

/// Of that a namespace has one in so many.
const OF_STORE: u64 = 4;

/// So many entries of one module, of a name and namespace: it has that many sets of options.
const OF_FUNCTION: usize = 4;

/// Seconds within which a function does not get one more of them: what has other options at each start, as with a variable that
/// has the pod's address, is made for nobody.
const AGAIN: u64 = 600;

/// An entry, as `share ls` tells it.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    /// What it is called.
    pub entry: String,
    /// Whose it is.
    pub namespace: String,
    /// Bytes of all of it.
    pub bytes: u64,
    /// The function's name.
    pub name: Option<String>,
    /// The digest of its module.
    pub upload: Option<String>,
    /// When it was made, in seconds since 1970.
    pub made: Option<u64>,
    /// Why no pod finds it.
    pub unused: Option<String>,
}

/// A disk.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// Bytes of it.
    pub size: u64,
    /// Of them, those that are free.
    pub free: u64,
}

/// What room is wanted for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Whose entry.
    pub namespace: &'a str,
    /// Of which function.
    pub name: &'a str,
    /// Of which module.
    pub upload: &'a str,
    /// Now, in seconds since 1970.
    pub now: u64,
}

/// Which entries go, of all that there are.
///
/// # Errors
/// Why there is no room all the same.
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
    let mut entries = Entries::new(rows);
    let same = rows
        .iter()
        .filter(|row| is_same(row) && row.unused.is_none());
    let last = same.clone().filter_map(|row| row.made).max();
    if same.count() >= OF_FUNCTION {
        if last.is_some_and(|last| wanted.now.saturating_sub(last) < AGAIN) {
            return Err("it has other options again and again");
        }
        entries.lose(is_same);
    }
    let most = disk.size / OF_DISK;
    while entries.bytes(is_own) > most / OF_STORE {
        entries.lose(is_own);
    }
    while entries.bytes(|_| true) > most {
        entries.lose(|_| true);
    }
    while disk.free + bytes(&entries.gone) < most {
        if !entries.lose(|_| true) {
            return Err("less than a tenth of its disk is free");
        }
    }
    Ok(entries.gone)
}

/// Entries, as they go.
struct Entries<'a> {
    /// In the order in which they go.
    left: Vec<&'a Row>,
    gone: Vec<&'a Row>,
}

impl<'a> Entries<'a> {
    fn new(rows: &'a [Row]) -> Self {
        let mut left: Vec<&Row> = rows.iter().collect();
        // What nobody finds, then the oldest.
        left.sort_by_key(|row| (row.unused.is_none(), row.made));
        Self {
            left,
            gone: Vec::new(),
        }
    }

    /// The next of those goes, if there is one.
    fn lose(&mut self, is_meant: impl Fn(&Row) -> bool) -> bool {
        let next = self.left.iter().position(|row| is_meant(row));
        self.gone.extend(next.map(|at| self.left.remove(at)));
        next.is_some()
    }

    fn bytes(&self, is_meant: impl Fn(&Row) -> bool) -> u64 {
        let meant: Vec<_> = { self.left.iter().copied() }
            .filter(|row| is_meant(row))
            .collect();
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
            now: 1000,
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
            row("a", "x", 60, 3),
            row("b", "y", 60, 1),
            row("c", "z", 60, 2),
        ];
        rows[0].unused = Some("another build".to_owned());
        assert_eq!(goes(&rows, DISK), Ok(vec!["a", "b"]));
    }

    #[test]
    fn a_disk_that_is_nearly_full_is_left_to_others() {
        let rows = [row("a", "x", 40, 1), row("b", "y", 40, 2)];
        let nearly = Disk { free: 70, ..DISK };
        assert_eq!(goes(&rows, nearly), Ok(vec!["a"]));
        assert!(goes(&rows, Disk { free: 0, ..DISK }).is_err());
        assert!(goes(&[], Disk { free: 99, ..DISK }).is_err());
        assert!(goes(&[], Disk { size: 0, free: 0 }).is_ok());
    }

    #[test]
    fn a_function_with_other_options_each_time_is_not_made_again_and_again() {
        let same = |entry: &str, made| Row {
            upload: Some("module".to_owned()),
            ..row(entry, "own", 1, made)
        };
        let mut rows: Vec<Row> = (1..=4).map(|at| same(&at.to_string(), at)).collect();
        assert_eq!(goes(&rows, DISK), Ok(vec!["1"]));
        rows[3].made = Some(500);
        assert!(goes(&rows, DISK).is_err());
        rows[3].unused = Some("another build".to_owned());
        assert_eq!(goes(&rows, DISK), Ok(vec![]));
    }
}
