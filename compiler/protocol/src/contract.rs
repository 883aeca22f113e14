//! The contract for starting the compile helper, and for its end.
//!
//! The command line is `faasw-compiler --isa LEVEL --jail JAIL`, with three descriptors and
//! [`JAIL_FD`] open and the resource limits set. The helper closes the jail before it reads
//! anything. It does not use standard input, and uses the environment only for the number of
//! threads and the size of its address space. It writes the report last and in one piece: if there
//! is no report, the helper failed or was killed by its limits, and the node need not read the
//! artifact.

/// Precedes the instruction set to compile for.
pub const ISA_FLAG: &str = "--isa";

/// Precedes the jail to close.
pub const JAIL_FLAG: &str = "--jail";
/// Runs the helper without a jail: for tests of its work.
pub const UNCONFINED_FLAG: &str = "--unconfined";

/// Descriptor by which the jail is handed over.
pub const JAIL_FD: i32 = 6;

/// Descriptor of a [`super::Input`]; the helper only reads it, from offset 0.
pub const INPUT_FD: i32 = 3;
/// Descriptor for the artifact, followed by the cache. The file is empty at first.
pub const OUTPUT_FD: i32 = 4;
/// Descriptor for the report.
pub const REPORT_FD: i32 = 5;

/// Most bytes of an upload: ten times what language engines need.
pub const UPLOAD_MAX: u64 = 256 << 20;
/// Most bytes of an encoded function state.
pub const STATE_MAX: u64 = 2 * UPLOAD_MAX;
/// Most bytes of the cache that a compilation leaves for the next one of the same function.
pub const CACHE_MAX: u64 = 64 << 20;
/// Most bytes of an input: the task, an upload, and a state.
pub const INPUT_MAX: u64 = (64 << 10) + UPLOAD_MAX + STATE_MAX;

/// The report was written, with whatever result.
pub const EXIT_REPORTED: i32 = 0;
/// The arguments or descriptors violate this contract; nothing was done.
pub const EXIT_USAGE: i32 = 64;
/// The process ran out of memory. There is no report.
pub const EXIT_MEMORY: i32 = 70;
/// The report could not be written.
pub const EXIT_IO: i32 = 74;
