//! A part of a log.

use serde::{Deserialize, Serialize};

use super::LogLine;

/// Lines of a log, and the place after them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPage {
    /// The lines, oldest first.
    pub lines: Vec<LogLine>,
    /// The place after the last line, from which the next page continues. Places restart when the
    /// node restarts.
    pub next: u64,
    /// The number of lines between the requested place and the first line that are no longer in the
    /// node's memory. The function's log file may have them.
    pub missed: u64,
}

impl LogPage {
    /// Creates a page without lines at a place.
    #[must_use]
    pub fn empty(place: u64) -> Self {
        Self {
            lines: Vec::new(),
            next: place,
            missed: 0,
        }
    }
}
