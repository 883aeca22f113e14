//! What forking takes besides a snapshot, which is the tree's.
//!
//! `frozen`: what the pool says of one. `pager`: brings its memory from disk while guests run.
//! `template`: what a sandbox is preset with; `parent`: its name, which does not keep it. `code`:
//! compiled code, mapped beside, and where it is when it is not in memory. `large_pages`: for
//! memory that every guest reads; `small_pages`: whether the system makes no others unasked. All of
//! it is sealed files and lists of pages: nothing here runs.

mod code;
mod frozen;
mod large_pages;
mod pager;
mod parent;
mod small_pages;
mod template;

pub use self::code::{
    Bringing, Code, CodeDigest, CodeError, CodeFilling, CodeSource, KeptCode, Pieces, ReadCode,
};
pub use self::frozen::{Frozen, describe, has_failed, is_whole, whole};
pub use self::large_pages::gather;
pub use self::pager::{Bases, Ending, Outcome, Paged, Pager, Unreadable};
pub use self::parent::Parent;
pub use self::small_pages::has_small_pages;
pub use self::template::Template;
