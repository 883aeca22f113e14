//! The interface for fuzz targets: the code that parses a guest's or a sandbox's messages. Not for
//! any other use.

use crate::error::InvokeError;
use crate::mailbox::parse;

pub use crate::mailbox::{LogLines, LogRecord, Mailbox, outcome};
pub use crate::sandboxes::{failure_text, preparation_error};

/// Parses a copy of a log ring.
///
/// # Errors
/// Returns an error if it does not consist of records.
pub fn parse_log(bytes: &[u8]) -> Result<Vec<LogRecord>, InvokeError> {
    parse(bytes)
}
