//! The newest lines of a log, in memory.

use std::collections::VecDeque;

use faasw_client::{LogLine, LogPage};

/// Maximum number of lines that are kept.
const LINES: usize = 1000;

/// Maximum bytes of text that are kept: 1000 lines of maximum length would be 16 MiB for each
/// function.
pub(super) const BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct RecentLines {
    lines: VecDeque<LogLine>,
    bytes: usize,
    /// The number of lines so far: the place after the last one.
    next: u64,
}

impl RecentLines {
    pub(super) fn add(&mut self, line: LogLine) {
        self.bytes += line.text.len();
        self.next += 1;
        self.lines.push_back(line);
        while self.lines.len() > LINES || self.bytes > BYTES {
            let Some(oldest) = self.lines.pop_front() else {
                return;
            };
            self.bytes -= oldest.text.len();
        }
    }

    /// Returns the newest lines, at most `count`.
    pub(super) fn newest(&self, count: usize) -> LogPage {
        let skipped = self.lines.len().saturating_sub(count);
        LogPage {
            lines: self.lines.iter().skip(skipped).cloned().collect(),
            next: self.next,
            missed: 0,
        }
    }

    /// Returns the lines after a place, or `None` if there are none yet. A place beyond the last
    /// line comes from another node: then all lines are new to the caller.
    pub(super) fn after(&self, place: u64) -> Option<LogPage> {
        if place == self.next {
            return None;
        }
        let oldest = self.next - self.lines.len() as u64;
        let place = if place > self.next { oldest } else { place };
        let known = usize::try_from(place.saturating_sub(oldest)).unwrap_or(usize::MAX);
        Some(LogPage {
            lines: self.lines.iter().skip(known).cloned().collect(),
            next: self.next,
            missed: oldest.saturating_sub(place),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faasw_pool::LogStream;
    use std::time::SystemTime;

    fn line(text: &str) -> LogLine {
        LogLine::new(SystemTime::UNIX_EPOCH, 1, LogStream::Out, text.as_bytes())
    }

    #[test]
    fn the_newest_lines_are_kept() {
        let mut recent = RecentLines::default();
        for number in 0..LINES + 5 {
            recent.add(line(&number.to_string()));
        }
        assert_eq!(recent.newest(usize::MAX).lines.len(), LINES);
        assert_eq!(texts(recent.newest(2)), ["1003", "1004"]);
    }

    fn texts(page: LogPage) -> Vec<String> {
        page.lines.into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn lines_are_read_from_a_position_and_lost_ones_are_counted() {
        let mut recent = RecentLines::default();
        assert_eq!(recent.after(0), None);
        for number in 0..LINES + 5 {
            recent.add(line(&number.to_string()));
        }
        let place = recent.newest(0).next;
        assert_eq!(recent.after(place), None);
        let page = recent.after(place - 2).unwrap();
        assert_eq!((page.next, page.missed), (place, 0));
        assert_eq!(texts(page), ["1003", "1004"]);
        let page = recent.after(2).unwrap();
        assert_eq!((page.lines.len(), page.missed), (LINES, 3));
        // A place of a node that ran before this one.
        let page = recent.after(place + 7).unwrap();
        assert_eq!((page.lines.len(), page.missed), (LINES, 0));
    }

    #[test]
    fn long_lines_push_out_more_of_the_old_ones() {
        let mut recent = RecentLines::default();
        for _ in 0..100 {
            recent.add(line(&"x".repeat(16 << 10)));
        }
        assert_eq!(recent.newest(usize::MAX).lines.len(), BYTES / (16 << 10));
    }
}
