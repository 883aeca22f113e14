//! Constants of the file format.

/// Bytes of the prefix.
pub(super) const PREFIX: usize = 4096;
/// First bytes of an image.
pub(super) const MAGIC: [u8; 8] = *b"faasw\0im";
/// Version of the format. Raise it whenever the meaning of an image's bytes changes.
pub(super) const FORMAT: u32 = 2;
/// Bytes that are sealed together: 16 pages, with one tag of 16 bytes.
pub(super) const CHUNK: usize = 64 << 10;
/// Maximum bytes of a header: that of the largest guest has some 3 MiB.
pub(super) const HEADER_MAX: usize = 16 << 20;
