//! A guest's memory as this process maps it.
//!
//! [`arena`] reserves its address ranges, and [`mapping`] copies in and out of one.
//! [`guest_memory`] maps RAM and code, [`mailbox`] the memory that is shared with the node.
//! [`page_map`] finds the pages that were written; `search_time` measures how long that takes.

pub mod arena;
pub mod guest_memory;
pub mod mailbox;
pub mod mapping;
pub mod page_map;
mod search_time;

pub use search_time::search_time;
