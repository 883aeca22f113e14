//! The format of a guest's log in the mailbox: records of a stream, a length and bytes.

use faasw_abi::mailbox::LOG_RECORD_HEADER;

use crate::error::InvokeError;
use crate::sink::LogStream;

/// A piece of log as the guest wrote it.
#[derive(Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The stream.
    pub stream: LogStream,
    /// The bytes: any part of a line, or several lines.
    pub bytes: Vec<u8>,
}

/// Parses a copy of the log area.
///
/// # Errors
/// Returns [`InvokeError::GuestFailed`] if it does not consist of whole records.
pub fn parse(mut bytes: &[u8]) -> Result<Vec<LogRecord>, InvokeError> {
    let broken = || InvokeError::GuestFailed("its log is not made of records".to_owned());
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (head, rest) = bytes
            .split_first_chunk::<LOG_RECORD_HEADER>()
            .ok_or_else(broken)?;
        let [stream, _, _, _, length @ ..] = *head;
        let length = u32::from_le_bytes(length) as usize;
        let (content, rest) = rest.split_at_checked(length).ok_or_else(broken)?;
        records.push(LogRecord {
            stream: match stream {
                1 => LogStream::Out,
                2 => LogStream::Err,
                _ => return Err(broken()),
            },
            bytes: content.to_vec(),
        });
        bytes = rest;
    }
    Ok(records)
}
