//! What a host has made of a function once, for all pods that serve the same (docs/decisions/0032).
//!
//! A [`Store`] is root's, and root is the one who writes to it ([`Store::begin`]): an entry for
//! each [`What`], of a namespace, a module, its options, this build of faasw and such a processor.
//! An [`Entry`] is one of these as a pod has it, read only and with a key that opens it and no
//! other. Nothing that a pod says ever reaches a store.
//!
//! ```text
//! STORE/                       0700: nobody but root comes further
//!   NAMESPACE/.lock            held by who adds and removes
//!   NAMESPACE/ID/key           0444: 32 bytes; for who is given it
//!   NAMESPACE/ID/entry/        0755: for who is given it
//!     note                     what it is of, sealed (`note`)
//!     artifacts/               compiled code, known by digests in the note
//!     images/                  func-images, each sealed: level 0 and 1, the engine, the function
//! ```

mod adding;
mod entry;
mod error;
mod note;
mod store;
mod what;

pub use self::{
    adding::{Adding, Begun},
    entry::Entry,
    error::{AddError, SharedError},
    store::{Found, Listed, Store, Told, read_key},
    what::{Namespace, NamespaceError, What},
};
pub(crate) use note::Whole;
