//! A host's results for a function, made once for all pods that serve the same function
//! (docs/decisions/0032).
//!
//! An [`EntryStore`] belongs to root, and only root writes to it ([`EntryStore::begin`]). It has an
//! entry for each [`EntrySubject`]: a namespace, a module, its options, a build of faasw and a type
//! of processor. An [`Entry`] is one of these as a pod sees it, read only and with a key that opens
//! no other entry. No data of a pod ever reaches a store.
//!
//! ```text
//! STORE/                       0700: only root can enter
//!   NAMESPACE/.lock            held while entries are added or removed
//!   NAMESPACE/ID/key           0444: 32 bytes; for pods that may use the entry
//!   NAMESPACE/ID/entry/        0755: for pods that may use the entry
//!     note                     the subject of the entry, sealed (`note`)
//!     artifacts/               compiled code, verified by digests in the note
//!     images/                  func-images, each sealed: level 0 and 1, the engine, the function
//! ```

mod entry;
mod entry_builder;
mod error;
mod note;
mod store;
mod subject;

pub use self::{
    entry::Entry,
    entry_builder::{EntryBuilder, EntryState},
    error::{AddError, SharedError},
    store::{EntryDescription, EntryLocation, EntryStore, ListedEntry, read_key},
    subject::{EntrySubject, Namespace, NamespaceError},
};
pub(crate) use note::SharedVersion;
