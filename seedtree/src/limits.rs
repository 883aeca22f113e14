//! Limits of a tree of seeds, and of the messages that order a fork.

use std::num::NonZeroU32;

/// Maximum number of layers of a seed: its own and those of its ancestors.
pub const LAYERS_MAX: usize = 16;

/// Maximum number of windows of an instance, whatever its seed's depth. Each is a mapping of the
/// sandbox, and of the view that it resets from. A seed that would have more absorbs those pages of
/// its ancestors that lie between the pages that it changed.
pub const WINDOWS_MAX: usize = 256;

/// Maximum number of ranges of a root.
pub const ROOT_MAX: usize = 8;

/// Maximum number of own ranges of a new seed.
pub const OWN_MAX: usize = 64;

/// Maximum number of ranges of a read or write set.
pub const SET_MAX: usize = 256;

/// Maximum number of pages of a read or write set. A request that uses more bears the cost itself,
/// so that other requests do not.
pub const SET_PAGES_MAX: u64 = 4096;

/// Number of pages of compiled code that are read and verified together. The system maps as many
/// around a page that is touched, so a finer record of used pages is not available.
pub const CODE_UNIT: NonZeroU32 = NonZeroU32::new(16).unwrap();

/// Maximum number of ranges that are filled in place in a specialised zygote.
pub const FILLED_MAX: usize = 64;

/// Maximum number of ranges that are mapped over those of a specialised zygote.
pub const MAPPED_MAX: usize = 4 * OWN_MAX;

/// Maximum number of private pages of a specialised zygote: each waiting zygote has them.
pub const PREPARED_PAGES_MAX: u64 = 1024;
