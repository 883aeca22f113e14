//! The lines of functions' logs.

use std::time::SystemTime;

use faasw_common::LogStream;
use faasw_common::text::TabbedLine;
use serde::{Deserialize, Serialize};

use crate::{RequestId, TraceContext, spelling};

/// Maximum length of a line in bytes. The pool splits longer ones.
const LONGEST: usize = 16 << 10;

/// A line of a function's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// The time at which the node received the line.
    #[serde(with = "spelling::time")]
    pub time: SystemTime,
    /// The number of the instance that wrote the line. 0 if the line comes from making the
    /// function's seed, or from the node before there was an instance.
    pub instance: u64,
    /// The request that the instance served. `None` while the seed was being made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// The trace of the request, if it has one.
    #[serde(flatten)]
    pub trace: Option<TraceContext>,
    /// The stream of the line.
    #[serde(with = "spelling::stream")]
    pub stream: LogStream,
    /// The text, without a line break. Characters that could affect a terminal or the tools of the
    /// log's reader are escaped: control characters except tabs, line and paragraph separators, and
    /// bidirectional controls.
    pub text: String,
}

impl LogLine {
    /// Creates a line from the bytes that were written, without the line break.
    #[must_use]
    pub fn new(time: SystemTime, instance: u64, stream: LogStream, bytes: &[u8]) -> Self {
        let bytes = bytes.get(..LONGEST).unwrap_or(bytes);
        Self {
            time,
            instance,
            request_id: None,
            trace: None,
            stream,
            text: TabbedLine(String::from_utf8_lossy(bytes)).to_string(),
        }
    }

    /// Sets the request of the line.
    #[must_use]
    pub fn of_request(mut self, id: RequestId, trace: Option<TraceContext>) -> Self {
        self.request_id = Some(id);
        self.trace = trace;
        self
    }

    /// Parses a line of a log file, in the format of [`fmt::Display`](std::fmt::Display).
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ' ');
        let time = spelling::time::parse(parts.next()?)?;
        let mut whose = parts.next()?.splitn(3, '/');
        let instance = whose.next()?.parse().ok()?;
        let request_id = whose.next().map(str::parse).transpose().ok()?;
        let trace = match whose.next() {
            Some(ids) => {
                let (trace_id, parent_id) = ids.split_once('-')?;
                Some(TraceContext::read(
                    trace_id.as_bytes(),
                    parent_id.as_bytes(),
                )?)
            }
            None => None,
        };
        let stream = spelling::stream::parse(parts.next()?)?;
        let bytes = parts.next()?.as_bytes();
        Some(Self {
            request_id,
            trace,
            ..Self::new(time, instance, stream, bytes)
        })
    }

    /// Returns the time in the format of RFC 3339, in UTC with milliseconds.
    #[must_use]
    pub fn time_text(&self) -> String {
        spelling::time::text(self.time)
    }
}

impl std::fmt::Display for LogLine {
    /// Writes time, instance, stream and text, as in the log file. The request and its trace follow
    /// the instance if they are known, separated by `/`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.time_text(), self.instance)?;
        if let Some(id) = self.request_id {
            write!(f, "/{id}")?;
            if let Some(trace) = self.trace {
                write!(f, "/{trace}")?;
            }
        }
        let stream = spelling::stream::word(self.stream);
        write!(f, " {stream} {}", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_line_is_time_instance_stream_and_text() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        let line = LogLine::new(time, 42, LogStream::Err, b"oh\tno");
        assert_eq!(line.to_string(), "2023-11-14T22:13:20.123Z 42 err oh\tno");
        let json = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<LogLine>(&json).unwrap(), line);
        assert_eq!(LogLine::read(&line.to_string()), Some(line));
        for damaged in ["", "x", "2023-11-14T22:13:20.123Z 42 ear oh", "4 out x"] {
            assert_eq!(LogLine::read(damaged), None);
        }
    }

    #[test]
    fn a_log_line_keeps_request_id_and_trace_apart_from_its_text() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        // A function's text that looks like the line of another request stays text.
        let text = b"1/forged out x";
        let line = LogLine::new(time, 42, LogStream::Out, text);
        let id: RequestId = "a-b.c".parse().unwrap();
        let ids = (b"00000000000000000000000000000abc", b"0000000000000def");
        let trace = TraceContext::read(ids.0, ids.1).unwrap();
        for (trace, whose) in [
            (None, "42/a-b.c"),
            (
                Some(trace),
                "42/a-b.c/00000000000000000000000000000abc-0000000000000def",
            ),
        ] {
            let line = line.clone().of_request(id, trace);
            let written = line.to_string();
            assert_eq!(
                written,
                format!("2023-11-14T22:13:20.123Z {whose} out 1/forged out x")
            );
            assert_eq!(LogLine::read(&written), Some(line.clone()));
            let json = serde_json::to_value(&line).unwrap();
            assert_eq!(json["request_id"], "a-b.c");
            assert_eq!(json.get("trace_id").is_some(), trace.is_some());
            assert_eq!(serde_json::from_value::<LogLine>(json).unwrap(), line);
        }
        let time = "2023-11-14T22:13:20.123Z";
        for whose in ["42/", "42/a b", "42/a/", "42/a/1-2", "/a", "42/a/b/c"] {
            let line = LogLine::read(&format!("{time} {whose} out x"));
            assert_eq!(line, None, "{whose}");
        }
    }

    #[test]
    fn control_characters_of_a_log_line_are_escaped() {
        let line = LogLine::new(SystemTime::now(), 1, LogStream::Out, b"\x1b[2Jred\r\xff");
        assert_eq!(line.text, "\\u{1b}[2Jred\\r\u{fffd}");
    }
}
