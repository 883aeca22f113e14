//! `share`: the store of func-images that the pods of a host share (docs/decisions/0032).

use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use faasw::{
    Limits, Node,
    shared::{EntryLocation, EntryState, EntryStore, EntrySubject, ListedEntry, SharedError},
};
use faasw_client::{Digest, FunctionName, FunctionOptions};
use rustix::process::geteuid;
use serde::Serialize;

use super::{
    args::{Of, Share, ShareAdd, ShareFind, ShareLs, ShareRm},
    confine::{Confinement, Needs},
    events::start_tracing,
    exit::Exit,
    files,
    output::{print, print_json, say, size, with_progress},
    preparation, script,
    serving::LogFormat,
};

/// The inputs that `add` reads and makes before it is confined.
pub struct Prepared {
    upload: Bytes,
    store: EntryStore,
    /// The folder of the namespace. An attacker who takes over the node cannot leave it.
    folder: PathBuf,
}

impl Prepared {
    /// Reads the file, and makes the store if it does not exist.
    ///
    /// # Errors
    /// Returns an error if this user is not root, or if the file or the store cannot be used.
    pub fn new(args: &ShareAdd) -> Result<Self, Exit> {
        let path = &args.of.within.store;
        if !geteuid().is_root() {
            return Err(Exit::failure(
                "only root can add to a store, because pods trust only root",
            ));
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| {
            Exit::failure(format_args!(
                "cannot create the store {}: {error}",
                path.display()
            ))
        })?;
        let store = store(path)?;
        Ok(Self {
            folder: store.of(&args.of.namespace),
            store,
            upload: upload(&args.file, &args.of)?,
        })
    }

    /// Returns the rights that `add` needs while it runs.
    pub fn needs(&self) -> Needs {
        Needs::new(Some(self.folder.clone()), [])
    }
}

fn store(path: &Path) -> Result<EntryStore, Exit> {
    EntryStore::open(path).map_err(Exit::failure)
}

fn upload(file: &Path, of: &Of) -> Result<Bytes, Exit> {
    let entry = of.entry.as_deref();
    let entry = entry.filter(|entry| preparation::takes_entry(file, entry));
    files::read_upload(file, entry, of.folder())
}

/// Returns the description of an entry.
fn what(of: Of, file: Option<&Path>, upload: Digest) -> Result<EntrySubject, Exit> {
    let name = match (of.name, file) {
        (given, Some(file)) => script::name_of(given, file)?,
        (Some(name), None) => name,
        (None, None) => return Err(Exit::usage("a digest has no name: set one with --name")),
    };
    Ok(EntrySubject {
        namespace: of.namespace,
        name,
        upload,
        options: FunctionOptions::from(of.options),
    })
}

/// An entry as it is printed.
#[derive(Serialize)]
struct EntryOutput<'a> {
    entry: Digest,
    folder: &'a Path,
    key: &'a Path,
}

impl<'a> EntryOutput<'a> {
    fn of(found: &'a EntryLocation) -> Self {
        Self {
            entry: found.id,
            folder: &found.folder,
            key: &found.key,
        }
    }
}

fn show(found: &EntryLocation, is_json: bool) -> Result<(), Exit> {
    if is_json {
        return print_json(&EntryOutput::of(found));
    }
    print(format_args!(
        "{}\n{}\n",
        found.folder.display(),
        found.key.display()
    ))
}

/// Makes an entry.
pub async fn add(args: ShareAdd, prepared: Prepared, confinement: Confinement) -> Result<(), Exit> {
    let Prepared { upload, store, .. } = prepared;
    let _summaries = start_tracing(LogFormat::Text, "warn");
    let what = what(args.of, Some(&args.file), Digest::of(&upload))?;
    let name = what.name.clone();
    let namespace = what.namespace.clone();
    let (found, became) = match store.begin(&what).await.map_err(Exit::failure)? {
        EntryState::Exists(found) => (found, "was there"),
        EntryState::New(adding) => {
            let builder = Node::builder()
                .limits(Limits::default())
                .zygotes(1)
                .launcher(confinement.launcher.clone());
            let node = adding.set_up(builder).start().await?;
            confinement.complete()?;
            let making = adding.make(node, upload, &args.requests);
            let made = with_progress(&name, making).await;
            let refused = |error| Exit::failure(format_args!("{name} was not added: {error}"));
            (made.map_err(refused)?, "made")
        }
    };
    say(format_args!("{name}: {became} for {namespace}"));
    show(&found, args.format.json)
}

/// Runs a command about a store, except `add`, which is confined.
pub fn share(command: Share) -> Result<(), Exit> {
    match command {
        Share::Add(_) => Ok(()),
        Share::Find(args) => find(*args),
        Share::Ls(args) => list(&args),
        Share::Rm(args) => remove(&args),
    }
}

fn find(args: ShareFind) -> Result<(), Exit> {
    let store = store(&args.of.within.store)?;
    let upload = match (&args.file, args.digest) {
        (_, Some(digest)) => digest,
        (Some(file), None) => Digest::of(&upload(file, &args.of)?),
        (None, None) => return Err(Exit::usage("a file or a digest is required")),
    };
    let what = what(args.of, args.file.as_deref(), upload)?;
    match store.find(&what) {
        Ok(Some(found)) => show(&found, args.format.json),
        Ok(None) => Err(Exit::not_shared(format_args!(
            "no entry of {} for {} with these options, this version of faasw and this host",
            what.name, what.namespace
        ))),
        Err(error) => {
            Err(Exit::failure(error).hint("`share add` makes it again, `share rm` removes it"))
        }
    }
}

/// An entry in a list.
#[derive(Serialize)]
struct Row<'a> {
    namespace: &'a str,
    #[serde(flatten)]
    shown: EntryOutput<'a>,
    bytes: u64,
    name: Option<&'a FunctionName>,
    upload: Option<Digest>,
    /// The time at which the entry was made, in seconds since 1970.
    made: Option<u64>,
    /// The reason why no pod finds the entry, if that is so.
    unused: Option<String>,
}

impl<'a> Row<'a> {
    fn of(listed: &'a ListedEntry) -> Self {
        let description = listed.description.as_ref();
        let known = description.ok();
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            namespace: listed.namespace.as_str(),
            shown: EntryOutput::of(&listed.found),
            bytes: listed.bytes,
            name: known.map(|known| &known.name),
            upload: known.map(|known| known.upload),
            made: known.map(|known| seconds(known.made).as_secs()),
            unused: match description {
                Ok(description) => description.stale.map(ToOwned::to_owned),
                Err(error) => Some(error.to_string()),
            },
        }
    }
}

fn list(args: &ShareLs) -> Result<(), Exit> {
    let store = store(&args.within.store)?;
    let all = store.list(args.namespace.as_ref()).map_err(Exit::failure)?;
    let rows: Vec<_> = all.iter().map(Row::of).collect();
    if args.format.json {
        return print_json(&rows);
    }
    let mut text = String::new();
    for row in rows {
        text.push_str(&format!(
            "{}  {:<20} {:<20} {:>10}  {}\n",
            row.shown.entry,
            row.namespace,
            row.name.map_or("?", |name| name.as_str()),
            size(row.bytes),
            row.unused.as_deref().unwrap_or("good here")
        ));
    }
    print(text)
}

fn remove(args: &ShareRm) -> Result<(), Exit> {
    let store = store(&args.within.store)?;
    let all = store.list(args.namespace.as_ref()).map_err(Exit::failure)?;
    let is_stale = |listed: &ListedEntry| {
        let description = &listed.description;
        !matches!(description, Ok(description) if description.stale.is_none())
    };
    let is_meant = |listed: &&ListedEntry| {
        if args.stale {
            is_stale(listed)
        } else {
            args.all || args.entries.contains(&listed.found.id)
        }
    };
    let mut removed = Vec::new();
    for listed in all.iter().filter(is_meant) {
        let id = listed.found.id;
        let done: Result<bool, SharedError> = store.remove(&listed.namespace, id);
        if done.map_err(Exit::failure)? {
            removed.push(id);
        }
    }
    let missing = args.entries.iter().find(|id| !removed.contains(id));
    match missing {
        Some(id) => Err(Exit::failure(format_args!("no entry {id}"))),
        None => {
            say(format_args!("{} removed", removed.len()));
            Ok(())
        }
    }
}
