//! The newest lines of a log, in memory.

use std::collections::VecDeque;

use super::LogLine;

/// Most lines that are kept.
const LINES: usize = 1000;

/// Most bytes of text that are kept: with the longest lines, 1000 of them
/// would be 16 MiB a function.
const BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Ring {
    lines: VecDeque<LogLine>,
    bytes: usize,
}

impl Ring {
    pub(super) fn add(&mut self, line: LogLine) {
        self.bytes += line.text.len();
        self.lines.push_back(line);
        while self.lines.len() > LINES || self.bytes > BYTES {
            let Some(oldest) = self.lines.pop_front() else {
                return;
            };
            self.bytes -= oldest.text.len();
        }
    }

    /// At most `count` lines, oldest first.
    pub(super) fn newest(&self, count: usize) -> Vec<LogLine> {
        let skipped = self.lines.len().saturating_sub(count);
        self.lines.iter().skip(skipped).cloned().collect()
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
        let mut ring = Ring::default();
        for number in 0..LINES + 5 {
            ring.add(line(&number.to_string()));
        }
        assert_eq!(ring.newest(usize::MAX).len(), LINES);
        let last: Vec<_> = ring.newest(2).into_iter().map(|line| line.text).collect();
        assert_eq!(last, ["1003", "1004"]);
    }

    #[test]
    fn long_lines_push_out_more_of_the_old_ones() {
        let mut ring = Ring::default();
        for _ in 0..100 {
            ring.add(line(&"x".repeat(16 << 10)));
        }
        assert_eq!(ring.newest(usize::MAX).len(), BYTES / (16 << 10));
    }
}
