//! A guest's memory as this process maps it.
//!
//! [`arena`] is the part of the address space that it has, [`mapping`] what of a seed or file is
//! where in it; [`guest_memory`] is RAM and code, [`mailbox`] what is shared with the node, and
//! [`page_map`] tells which pages were written; `search_time` measures how long that takes.

pub mod arena;
pub mod guest_memory;
pub mod mailbox;
pub mod mapping;
pub mod page_map;
mod search_time;

pub use search_time::search_time;
