//! A part of a log.

use serde::{Deserialize, Serialize};

use super::LogLine;

/// Lines of a log, and the place behind them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPage {
    /// The lines, oldest first.
    pub lines: Vec<LogLine>,
    /// The place behind the last line: what comes later comes after it. Places
    /// begin anew when the node does.
    pub next: u64,
    /// Lines between the place that was asked for and these, which the node
    /// has in memory no more. The function's log file may have them.
    pub missed: u64,
}

impl LogPage {
    /// No lines after a place.
    #[must_use]
    pub fn empty(place: u64) -> Self {
        Self {
            lines: Vec::new(),
            next: place,
            missed: 0,
        }
    }
}
