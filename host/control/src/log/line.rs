//! One line of a function's log.

use std::time::SystemTime;

use faasw_text::TabbedLine;
use faasw_words::LogStream;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::spelling;

/// Longest line in bytes; the pool sends longer ones in parts.
const LONGEST: usize = 16 << 10;

/// A line of a function's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When the node received it.
    #[serde(serialize_with = "write_time", deserialize_with = "read_time")]
    pub time: SystemTime,
    /// The number of the instance that it came from; 0 where it came from
    /// making the function's seed, or from the node before there was an instance.
    pub instance: u64,
    /// The stream that it came from.
    #[serde(with = "spelling::stream")]
    pub stream: LogStream,
    /// The text, without a line break. What could play with the terminal or the
    /// tools of who reads the log is escaped: control characters but tabs, line
    /// and paragraph separators, bidirectional controls.
    pub text: String,
}

impl LogLine {
    /// A line as it was written, without its line break.
    #[must_use]
    pub fn new(time: SystemTime, instance: u64, stream: LogStream, bytes: &[u8]) -> Self {
        let bytes = bytes.get(..LONGEST).unwrap_or(bytes);
        Self {
            time,
            instance,
            stream,
            text: TabbedLine(String::from_utf8_lossy(bytes)).to_string(),
        }
    }

    /// Reads a line of a log file, as [`fmt::Display`](std::fmt::Display) writes it.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ' ');
        let time = humantime::parse_rfc3339(parts.next()?).ok()?;
        let instance = parts.next()?.parse().ok()?;
        let stream = spelling::stream::parse(parts.next()?)?;
        let bytes = parts.next()?.as_bytes();
        Some(Self::new(time, instance, stream, bytes))
    }

    /// The time as RFC 3339 has it, in UTC with milliseconds.
    #[must_use]
    pub fn time_text(&self) -> String {
        humantime::format_rfc3339_millis(self.time).to_string()
    }
}

impl std::fmt::Display for LogLine {
    /// Time, instance, stream and text, as in the log file.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stream = spelling::stream::word(self.stream);
        write!(
            f,
            "{} {} {stream} {}",
            self.time_text(),
            self.instance,
            self.text
        )
    }
}

fn write_time<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_rfc3339_millis(*time))
}

fn read_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_rfc3339(&text).map_err(D::Error::custom)
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
    fn terminals_are_safe_from_a_line() {
        let line = LogLine::new(SystemTime::now(), 1, LogStream::Out, b"\x1b[2Jred\r\xff");
        assert_eq!(line.text, "\\u{1b}[2Jred\\r\u{fffd}");
    }
}
