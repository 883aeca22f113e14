//! Assembling lines from pieces of log.

use std::sync::Arc;

use super::log_record::LogRecord;
use crate::sink::{LogSink, LogStream};

/// The longest line that is passed on whole, in bytes.
const LINE_MAX: usize = 16 << 10;

/// Collects the log of an instance and passes it on line by line.
#[derive(Debug)]
pub struct LogLines {
    sink: Arc<dyn LogSink>,
    instance: u64,
    out: Vec<u8>,
    err: Vec<u8>,
}

impl LogLines {
    /// Passes the lines of `instance` on to `sink`.
    pub fn new(sink: Arc<dyn LogSink>, instance: u64) -> Self {
        sink.begins(instance);
        Self {
            sink,
            instance,
            out: Vec::new(),
            err: Vec::new(),
        }
    }

    /// Returns the receiver of the lines.
    pub fn sink(&self) -> &Arc<dyn LogSink> {
        &self.sink
    }

    /// Takes pieces in the order in which they were written.
    pub fn take(&mut self, records: &[LogRecord]) {
        for record in records {
            let line = match record.stream {
                LogStream::Err => &mut self.err,
                _ => &mut self.out,
            };
            for byte in &record.bytes {
                if *byte == b'\n' {
                    self.sink.line(self.instance, record.stream, line);
                    line.clear();
                    continue;
                }
                line.push(*byte);
                if line.len() == LINE_MAX {
                    self.sink.line(self.instance, record.stream, line);
                    line.clear();
                }
            }
        }
    }

    /// Passes on the last line, which may lack its line break.
    pub fn end(&mut self) {
        for (stream, line) in [
            (LogStream::Out, &mut self.out),
            (LogStream::Err, &mut self.err),
        ] {
            if !line.is_empty() {
                self.sink.line(self.instance, stream, line);
                line.clear();
            }
        }
    }
}

impl Drop for LogLines {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Debug, Default)]
    struct RecordedLines(Mutex<Vec<(LogStream, String)>>);

    impl LogSink for RecordedLines {
        fn line(&self, _: u64, stream: LogStream, line: &[u8]) {
            let line = String::from_utf8_lossy(line).into_owned();
            self.0.lock().unwrap().push((stream, line));
        }
    }

    fn lines(pieces: &[(LogStream, &str)]) -> Vec<(LogStream, String)> {
        let kept = Arc::new(RecordedLines::default());
        let mut lines = LogLines::new(kept.clone(), 1);
        for (stream, text) in pieces {
            lines.take(&[LogRecord {
                stream: *stream,
                bytes: text.as_bytes().to_vec(),
            }]);
        }
        drop(lines);
        std::mem::take(&mut *kept.0.lock().unwrap())
    }

    #[test]
    fn lines_are_put_together_across_pieces_and_apart_by_stream() {
        use LogStream::{Err, Out};
        assert_eq!(
            lines(&[(Out, "a"), (Err, "x\ny"), (Out, "b\n\n"), (Out, "last")]),
            [
                (Err, "x".into()),
                (Out, "ab".into()),
                (Out, String::new()),
                (Out, "last".into()),
                (Err, "y".into()),
            ]
        );
    }

    #[test]
    fn an_endless_line_comes_in_parts() {
        let long = "x".repeat(LINE_MAX * 2 + 1);
        let lengths: Vec<_> = lines(&[(LogStream::Out, &long)])
            .iter()
            .map(|(_, line)| line.len())
            .collect();
        assert_eq!(lengths, [LINE_MAX, LINE_MAX, 1]);
    }
}
