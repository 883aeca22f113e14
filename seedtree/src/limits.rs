//! What bounds a tree of seeds, and what orders to fork them have room for.

use std::num::NonZeroU32;

/// Layers of a seed at most: its own and those of its ancestors.
pub const LAYERS_MAX: usize = 16;

/// Most windows of an instance, whatever its seed's depth: each is a mapping of the sandbox,
/// and of the view that it resets from. A seed that would have more absorbs pages of its
/// ancestors between those that it changed.
pub const WINDOWS_MAX: usize = 256;

/// Most ranges of a root.
pub const ROOT_MAX: usize = 8;

/// Most ranges that a new seed can have of its own.
pub const OWN_MAX: usize = 64;

/// Most ranges of a read or write set.
pub const SET_MAX: usize = 256;

/// Most pages of a read or write set: what a request uses beyond that is its own
/// doing, and is not to cost every other one.
pub const SET_PAGES_MAX: u64 = 4096;

/// Pages of compiled code that are read and verified together. As many the system maps round one
/// that is touched, so nobody knows more exactly which are used.
pub const CODE_UNIT: NonZeroU32 = NonZeroU32::new(16).unwrap();

/// Most ranges that are filled in place in a zygote that is specialised.
pub const FILLED_MAX: usize = 64;

/// Most ranges that are mapped over those of a sandbox that is preset.
pub const MAPPED_MAX: usize = 4 * OWN_MAX;

/// Most pages that a sandbox which is preset has as private ones: each that waits has them.
pub const PREPARED_PAGES_MAX: u64 = 1024;
