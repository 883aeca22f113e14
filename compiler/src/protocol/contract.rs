//! How the compile helper is started and how it ends.
//!
//! `faasw-compiler --isa LEVEL --jail JAIL`, with three descriptors and [`JAIL_FD`] open and its
//! resource limits set; it closes the jail before it reads anything. Standard input does not
//! matter, the environment only for how many threads and how much address space it takes. A report
//! is written last and in one piece, so whoever finds none need not look at the artifact: the
//! helper was killed by its limits, or failed.

/// Names the instruction set to compile for, as the next argument.
pub const ISA_FLAG: &str = "--isa";

/// Names the jail to close, as the next argument.
pub const JAIL_FLAG: &str = "--jail";
/// Has the helper run without a jail: for tests of what it does.
pub const UNCONFINED_FLAG: &str = "--unconfined";

/// Descriptor that the jail is handed over with.
pub const JAIL_FD: i32 = 6;

/// Descriptor with a [`super::Input`]; only read, from offset 0.
pub const INPUT_FD: i32 = 3;
/// Descriptor that gets the artifact, and behind it the cache that is kept; an empty file.
pub const OUTPUT_FD: i32 = 4;
/// Descriptor that gets the report.
pub const REPORT_FD: i32 = 5;

/// Most bytes of an upload, above what language engines need by a factor of ten.
pub const UPLOAD_MAX: u64 = 256 << 20;
/// Most bytes of what the state of a function is told in.
pub const STATE_MAX: u64 = 2 * UPLOAD_MAX;
/// Most bytes of what is kept of a compilation for the next one of the same function.
pub const CACHE_MAX: u64 = 64 << 20;
/// Most bytes of an input: what is to be done, an upload, and what it has become.
pub const INPUT_MAX: u64 = (64 << 10) + UPLOAD_MAX + STATE_MAX;

/// The report has been written, whatever it says.
pub const EXIT_REPORTED: i32 = 0;
/// Arguments or descriptors are not as this module says; nothing was done.
pub const EXIT_USAGE: i32 = 64;
/// Out of memory. There is no report.
pub const EXIT_MEMORY: i32 = 70;
/// The report could not be written.
pub const EXIT_IO: i32 = 74;
