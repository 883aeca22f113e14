//! Adding an entry to a store. Nothing else is written to a store. A node that runs as root
//! compiles and seeds the function, in jails as any node does, and then ends.

use std::{
    fmt,
    fs::{self, DirBuilder, File, Permissions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use faasw_abi::outgoing::{Failure, FailureCode};
use faasw_pool::{Images, Outbound, OutgoingCall, OutgoingRequest};
use http::Request;

use super::{
    entry::{ARTIFACTS, Entry, IMAGES, NOTE},
    error::{AddError, SharedError, at},
    note::{Note, SharedVersion},
    store::{ENTRY, EntryLocation, EntryStore, KEY, UNFINISHED_PREFIX},
    subject::EntrySubject,
};
use crate::{builder::NodeBuilder, node::Node, services::outbound::RefusedCall};

/// Disk budget in bytes for images of the one function and its ancestors: effectively unlimited.
const IMAGE_DISK: u64 = 1 << 40;

/// Time to wait until the working set of requests is known, and interval of the checks for that.
const WORKING_SET_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// File modes of an entry. Any user may read it, but only processes that root gives access can
/// reach it: the store's folder is root's.
const READ: u32 = 0o444;
const PASS: u32 = 0o755;

/// The state of an entry that a caller wants.
#[derive(Debug)]
pub enum EntryState {
    /// The entry exists.
    Exists(EntryLocation),
    /// The entry must be made.
    New(Box<EntryBuilder>),
}

/// An entry that is being made. The namespace is locked meanwhile. If it is dropped, nothing of the
/// entry remains.
#[derive(Debug)]
pub struct EntryBuilder {
    store: EntryStore,
    subject: EntrySubject,
    making: UnfinishedEntry,
    /// Dropped last.
    _lock: File,
}

impl EntryStore {
    /// Begins the entry of `subject`, unless it exists. A damaged entry is removed and made again.
    /// Waits for other processes that add or remove entries of the namespace.
    ///
    /// # Errors
    /// Returns an error if the namespace's folder cannot be created, locked or written to.
    pub async fn begin(&self, subject: &EntrySubject) -> Result<EntryState, SharedError> {
        let (store, subject) = (self.clone(), subject.clone());
        blocking(&self.folder, move || store.begin_here(subject)).await
    }

    fn begin_here(self, subject: EntrySubject) -> Result<EntryState, SharedError> {
        make_folder(&self.of(&subject.namespace), 0o700)?;
        let lock = self.lock(&subject.namespace)?;
        match self.find(&subject) {
            Ok(Some(found)) => return Ok(EntryState::Exists(found)),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "an entry is made again"),
        }
        // A damaged entry, or anything else, may be in its place.
        self.remove_if_present(&subject.namespace, self.place(&subject)?.id)?;
        self.sweep(&subject.namespace);
        Ok(EntryState::New(Box::new(EntryBuilder {
            making: UnfinishedEntry::begin(&self, &subject)?,
            store: self,
            subject,
            _lock: lock,
        })))
    }
}

impl EntryBuilder {
    /// Configures a node for making the entry. Apart from this, the builder must have no data
    /// directory, and only the limits that pods have. Outbound calls of the function are refused,
    /// because they would use root's network.
    pub fn set_up(&self, builder: NodeBuilder) -> NodeBuilder {
        builder
            .data_dir(self.making.data())
            .image_key(self.making.secret)
            .image_disk(IMAGE_DISK)
            .outbound_by(Arc::new(DenyAllOutbound))
    }

    /// Makes the entry with a node from [`EntryBuilder::set_up`], which is shut down. The function
    /// answers `requests`, by GET, before its images are stored, so that the pages that they use
    /// come first.
    ///
    /// # Errors
    /// Returns an error if the function cannot be deployed, if it answers a request with a server
    /// error or an incomplete response, or if the entry cannot be written. Nothing of the entry
    /// remains then.
    pub async fn make(
        self,
        node: Node,
        upload: Bytes,
        requests: &[String],
    ) -> Result<EntryLocation, AddError> {
        let made = make(&node, &self.subject, upload, requests).await;
        node.shutdown().await;
        drop(node);
        let (version, folder) = (made?, self.store.folder.clone());
        let keeping = blocking(&folder, move || {
            let Self {
                store,
                subject,
                making,
                _lock,
            } = self;
            making.keep(&store, &subject, version)
        });
        Ok(keeping.await?)
    }
}

/// Deploys the function, and has its images written.
async fn make(
    node: &Node,
    subject: &EntrySubject,
    upload: Bytes,
    requests: &[String],
) -> Result<SharedVersion, AddError> {
    let name = subject.name.as_str();
    node.deploy(name, upload, subject.options.clone()).await?;
    for path in requests {
        let request = Request::get(path).body(String::new());
        let request =
            request.map_err(|error| SharedError::file(path.as_ref(), io::Error::other(error)))?;
        let (head, body) = node.invoke(name, request).await.into_parts();
        let status = head.status.as_u16();
        if body.into_bytes().await.is_err() || head.status.is_server_error() {
            let path = path.clone();
            return Err(AddError::Answer { path, status });
        }
    }
    if !requests.is_empty() && !wait_for_working_set(node, name).await {
        tracing::warn!(function = %name, "the working set was not recorded in time; pods read the \
             whole func-image at once");
    }
    Ok(node.parts.inspector.shared_version(name).await?)
}

/// Waits until the working set of the requests is known, which is determined after their answers.
/// Returns whether it is known.
async fn wait_for_working_set(node: &Node, name: &str) -> bool {
    let deadline = Instant::now() + WORKING_SET_TIMEOUT;
    // There is no notification, so the state is polled.
    let mut looks = tokio::time::interval(POLL_INTERVAL);
    while Instant::now() < deadline {
        looks.tick().await;
        let tree = node.tree();
        let mut its = tree.iter().filter(|seed| seed.name == name);
        if its.any(|seed| seed.written_pages > 0) {
            return true;
        }
    }
    false
}

/// Refuses all outbound calls.
#[derive(Debug)]
struct DenyAllOutbound;

impl Outbound for DenyAllOutbound {
    fn begin(&self, _request: OutgoingRequest) -> Box<dyn OutgoingCall> {
        Box::new(RefusedCall::new(Failure::new(
            FailureCode::HttpRequestDenied,
        )))
    }
}

/// An unfinished entry, until it is renamed to its final name.
struct UnfinishedEntry {
    folder: PathBuf,
    secret: [u8; Entry::KEY],
}

impl fmt::Debug for UnfinishedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnfinishedEntry({:?})", self.folder)
    }
}

impl UnfinishedEntry {
    fn begin(store: &EntryStore, subject: &EntrySubject) -> Result<Self, SharedError> {
        let of = store.of(&subject.namespace);
        let secret = at(&store.folder, Images::secret())?;
        let name = at(&store.folder, Images::secret())?;
        let name = faasw_client::Digest::of(&name);
        let folder = of.join(format!("{UNFINISHED_PREFIX}{name}"));
        make_folder(&folder, 0o700)?;
        Ok(Self { folder, secret })
    }

    /// Returns the node's data directory.
    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Moves the files that the node has made, seals the note, and renames the entry to its final
    /// name.
    fn keep(
        self,
        store: &EntryStore,
        subject: &EntrySubject,
        version: SharedVersion,
    ) -> Result<EntryLocation, SharedError> {
        let (data, entry) = (self.data(), self.folder.join(ENTRY));
        make_folder(&entry, PASS)?;
        let (images, artifacts) = (entry.join(IMAGES), entry.join(ARTIFACTS));
        rename(&data.join("images"), &images)?;
        for file in at(&images, fs::read_dir(&images))? {
            permit(&at(&images, file)?.path(), READ)?;
        }
        permit(&images, PASS)?;
        make_folder(&artifacts, PASS)?;
        let code = artifacts.join(&version.code.0);
        rename(&data.join("artifacts").join(&version.code.0), &code)?;
        permit(&code, READ)?;
        let note = Note::of(subject, &version);
        let sealed = {
            let images = Images::new(images, &self.secret, 0);
            note.seal(&images, version)
        };
        let sealed = sealed.map_err(|error| SharedError::Note {
            path: entry.clone(),
            error,
        })?;
        write(&entry.join(NOTE), &sealed)?;
        write(&self.folder.join(KEY), &self.secret)?;
        at(&data, fs::remove_dir_all(&data))?;
        for folder in [&artifacts, &entry, &self.folder] {
            sync(folder)?;
        }
        let found = store.place(subject)?;
        let place = found.key.parent().unwrap_or(&store.folder);
        rename(&self.folder, place)?;
        sync(&store.of(&subject.namespace))?;
        Ok(found)
    }
}

impl Drop for UnfinishedEntry {
    /// Removes the unfinished entry. If the entry was kept, nothing has this name any more.
    fn drop(&mut self) {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(folder = ?self.folder, %error, "an incomplete entry could not be \
                     removed; the next addition retries");
            }
            _ => {}
        }
    }
}

/// Creates a folder. An existing folder is left unchanged.
fn make_folder(path: &Path, mode: u32) -> Result<(), SharedError> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => at(path, made).and_then(|()| permit(path, mode)),
    }
}

fn permit(path: &Path, mode: u32) -> Result<(), SharedError> {
    at(
        path,
        fs::set_permissions(path, Permissions::from_mode(mode)),
    )
}

fn rename(from: &Path, to: &Path) -> Result<(), SharedError> {
    at(from, fs::rename(from, to))
}

fn sync(folder: &Path) -> Result<(), SharedError> {
    at(
        folder,
        File::open(folder).and_then(|folder| folder.sync_all()),
    )
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), SharedError> {
    let write = || {
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    at(path, write())?;
    permit(path, READ)
}

/// Runs work that may wait for a disk or for the lock.
async fn blocking<T: Send + 'static>(
    folder: &Path,
    work: impl FnOnce() -> Result<T, SharedError> + Send + 'static,
) -> Result<T, SharedError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(SharedError::file(folder, io::Error::other(error))))
}
