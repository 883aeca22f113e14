//! Opens a redb database that outlives the process.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use redb::Database;

/// Opens the database at this path, with a page cache of `cache` bytes. A new database is created
/// under another name, gets its tables by `make`, and is renamed when it is complete. redb does not
/// recognise a database whose creation was cut off.
///
/// # Errors
/// Returns the errors of `make`, and the result of `failed` for errors of the file system and of
/// redb.
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
        // Closing the database before the rename writes all of it.
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
