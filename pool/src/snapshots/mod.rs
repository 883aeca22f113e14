//! The data that forking needs besides a snapshot, which is the tree's.
//!
//! `seed_snapshot`: the pool's data of a snapshot. `pager`: reads its memory from disk while guests
//! run. `template`: the state that zygotes are specialised with; `parent`: the identity of its
//! seed, as a weak reference. `code`: compiled code, which is mapped beside, and its storage.
//! `loading`: waiting for the rest of both.
//! `large_pages`: for memory that every guest reads; `small_pages`: whether the kernel makes no
//! other pages unless requested. All of it is sealed files and lists of pages: nothing here runs.

mod code;
mod large_pages;
mod loading;
mod pager;
mod parent;
mod seed_snapshot;
mod small_pages;
mod template;

pub use self::code::{
    Code, CodeDigest, CodeError, CodeFill, CodeHandle, CodeSource, LoadFuture, LoadedCode, Pieces,
};
pub use self::large_pages::gather;
pub use self::pager::{
    InstanceEnder, MemoryBases, Pager, PagerRegistration, PagingOutcome, SeedReadError,
};
pub use self::parent::ParentRef;
pub use self::seed_snapshot::{
    SeedSnapshot, describe, has_failed, is_fully_loaded, wait_fully_loaded,
};
pub use self::small_pages::has_small_pages;
pub use self::template::ZygoteTemplate;
