//! What fuzz targets reach of this crate: whatever reads a guest's or a sandbox's words.
//! Not for anybody else.

use crate::error::InvokeError;
use crate::mailbox::parse;

pub use crate::mailbox::{LogLines, LogRecord, Mailbox, outcome};
pub use crate::sandboxes::{failure, not_prepared};

/// Takes a copy of a log ring apart.
///
/// # Errors
/// When it is not made of records.
pub fn parse_log(bytes: &[u8]) -> Result<Vec<LogRecord>, InvokeError> {
    parse(bytes)
}
