//! What node and guest say to each other.
//!
//! The node copies in and out of a mailbox, and holds every length and counter against its area
//! before anything is copied (`file`, and `message` what passes through its channels); of one that
//! is hot it also sees single words where they are (`hot`). Above that: `log_record` and
//! `log_lines`, what a guest logs; `rate_limit`, how often it is listened to; `outcome`, what its
//! last words mean. Knows no process.

mod file;
mod hot;
mod log_lines;
mod log_record;
mod message;
mod outcome;
mod rate_limit;

pub use self::file::Mailbox;
pub use self::log_lines::LogLines;
#[cfg(feature = "fuzzing")]
pub use self::log_record::{LogRecord, parse};
pub use self::outcome::{fatal, meaningless, outcome};
pub use self::rate_limit::{CallWork, RateLimit};
