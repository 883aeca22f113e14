//! What fuzz targets reach of this crate: whatever reads a guest's or a shell's words.
//! Not for anybody else.

use crate::error::InvokeError;
use crate::mailbox;

pub use crate::log_lines::LogLines;
pub use crate::mailbox::{LogRecord, Mailbox};
pub use crate::run::outcome;
pub use crate::shell::{UsedPages, extents, failure, not_prepared};
pub use crate::working_set::WorkingSet;

/// Takes a copy of a log ring apart.
///
/// # Errors
/// When it is not made of records.
pub fn parse_log(bytes: &[u8]) -> Result<Vec<LogRecord>, InvokeError> {
    mailbox::parse_log(bytes)
}
