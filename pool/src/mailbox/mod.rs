//! The messages between node and guest.
//!
//! The node copies data in and out of a mailbox, and checks every length and counter against its
//! area before anything is copied (`file`, and `message` for the data in its channels). Of a hot
//! mailbox it also reads single words in place (`file::hot`). Above that: `log_record` and
//! `log_lines`, a guest's log; `rate_limit`, how often the node inspects a guest; `outcome`, the
//! meaning of a guest's outcome. These modules know no process.

mod file;
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
