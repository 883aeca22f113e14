//! Opening a database of redb's that outlives the process.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use redb::Database;

/// Opens the database of this path, whose pages redb keeps `cache` bytes of. A new one is made
/// aside, gets its tables by `make`, and is renamed when it is whole: redb does not know one again
/// whose making was cut off.
///
/// # Errors
/// `make`'s, and what `failed` makes of the system's and redb's.
pub(crate) fn open<E>(
    path: &Path,
    cache: usize,
    make: impl FnOnce(&Database) -> Result<(), E>,
    failed: impl Fn(redb::Error) -> E,
) -> Result<Database, E> {
    let system = |error: io::Error| failed(error.into());
    if !path.try_exists().map_err(system)? {
        let unfinished = path.with_extension("unfinished");
        let made = open_file(&unfinished, cache, true).map_err(&failed)?;
        make(&made)?;
        // Closed before it is renamed, by which all of it is written.
        drop(made);
        fs::rename(&unfinished, path).map_err(system)?;
        let folder = path.parent().unwrap_or(path);
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(system)?;
    }
    open_file(path, cache, false).map_err(failed)
}

fn open_file(path: &Path, cache: usize, empty: bool) -> Result<Database, redb::Error> {
    let file = File::options()
        .read(true)
        .write(true)
        .create(empty)
        .truncate(empty)
        .mode(0o600)
        .open(path)?;
    let database = Database::builder().set_cache_size(cache).create_file(file);
    Ok(database?)
}
