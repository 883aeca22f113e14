//! A guest's log, from bytes to lines. Input: the log.

use std::sync::{Arc, Mutex, PoisonError};

use faasw_pool::fuzzing::{LogLines, parse_log};
use faasw_pool::{LogSink, LogStream};

use crate::Target;

/// A record of no bytes takes eight bytes in the ring and four times as many here.
pub const TARGET: Target = Target {
    name: "log",
    read,
    memory: 64 << 10,
    per_byte: 24,
    executions: 50_000,
};

/// The limit that `LogSink` promises.
const LINE_MAX: usize = 16 << 10;

#[derive(Debug, Default)]
struct Sum(Mutex<[(usize, usize); 2]>);

impl LogSink for Sum {
    fn line(&self, _: u64, stream: LogStream, line: &[u8]) {
        assert!(line.len() <= LINE_MAX && !line.contains(&b'\n'));
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [out, err] = &mut *sums;
        let (lines, bytes) = if stream == LogStream::Err { err } else { out };
        *lines += 1;
        *bytes += line.len();
    }
}

fn read(bytes: &[u8]) -> bool {
    let Ok(records) = parse_log(bytes) else {
        return false;
    };
    let sum = Arc::new(Sum::default());
    let mut lines = LogLines::new(sum.clone(), 1);
    lines.take(&records);
    drop(lines);
    let [out, err] = *sum.0.lock().unwrap_or_else(PoisonError::into_inner);
    for (stream, (lines, bytes)) in [(LogStream::Out, out), (LogStream::Err, err)] {
        let said = records.iter().filter(|record| record.stream == stream);
        let said = said.flat_map(|record| &record.bytes);
        let (breaks, others): (Vec<u8>, Vec<u8>) = said.partition(|byte| **byte == b'\n');
        // Nothing is lost. There is one line more than there are breaks for an unfinished last
        // line, and one more for each part of a line that is too long.
        assert_eq!(bytes, others.len());
        assert!((breaks.len()..=breaks.len() + 1 + bytes / LINE_MAX).contains(&lines));
    }
    true
}
