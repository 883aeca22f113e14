//! The log of guests that have no function.

use std::sync::Arc;

use faasw_common::text::Line;

use crate::mailbox::LogLines;
use crate::sink::{LogSink, LogStream};

/// Logs the output of a guest without a function. Such a guest should have none.
#[derive(Debug)]
pub(super) struct OwnLog;

impl LogSink for OwnLog {
    fn line(&self, _: u64, _: LogStream, line: &[u8]) {
        tracing::warn!(line = %Line(String::from_utf8_lossy(line)), "a guest without a function \
             wrote to its log");
    }
}

pub(super) fn own_log() -> LogLines {
    LogLines::new(Arc::new(OwnLog), 0)
}
