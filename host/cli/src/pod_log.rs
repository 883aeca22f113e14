//! The output of a pod: the function's log on standard output and error, one record in each line.
//!
//! The function's output goes to standard output. Its error output and the node's messages about it
//! go to standard error. The node never waits for the readers ([`BackgroundWriter`]). Lines are
//! escaped when they are made ([`LogLine`]), so that a function cannot forge a record.

use std::io;

use faasw::{Event, LogLine, LogStream};
use faasw_common::text::{Json, TabbedLine};

use super::{
    access_log::Lines,
    background_writer::{BackgroundWriter, Handle, LogDescription},
    exit::Exit,
    serving::LogFormat,
};

/// Both streams. Dropping it waits up to 1 s for each stream until the remaining lines are written.
#[derive(Debug)]
pub struct PodLog {
    out: BackgroundWriter,
    err: BackgroundWriter,
    format: LogFormat,
}

/// A handle by which lines are added.
#[derive(Clone, Debug)]
pub struct Writer {
    out: Handle,
    err: Handle,
    format: LogFormat,
}

impl PodLog {
    /// Starts to log to standard output and error.
    ///
    /// # Errors
    /// Returns an error if the threads cannot be started.
    pub fn new(format: LogFormat) -> Result<Self, Exit> {
        let dropped: fn(u64) -> String = match format {
            LogFormat::Text => |count| format!("faasw: {count} lines were dropped\n"),
            LogFormat::Json => |count| format!("{{\"dropped\":{count}}}\n"),
        };
        let description = |name, thread| LogDescription {
            name,
            lines: "lines of the function",
            thread,
            dropped,
        };
        let failed = |error: io::Error| {
            Exit::failure(format_args!("cannot start a thread for the log: {error}"))
        };
        let (mut to_out, mut to_err) = (Lines::default(), Lines::default());
        let out = BackgroundWriter::new(
            description("standard output", "faasw-out"),
            move |lines: &[u8]| to_out.write(&mut io::stdout().lock(), lines),
        );
        let err = BackgroundWriter::new(
            description("standard error", "faasw-err"),
            move |lines: &[u8]| to_err.write(&mut io::stderr().lock(), lines),
        );
        Ok(Self {
            out: out.map_err(failed)?,
            err: err.map_err(failed)?,
            format,
        })
    }

    /// Returns a handle by which lines are added.
    pub fn writer(&self) -> Writer {
        Writer {
            out: self.out.handle(),
            err: self.err.handle(),
            format: self.format,
        }
    }
}

impl Writer {
    /// Writes the function's lines. Shows other events as usual.
    pub fn show(&self, event: Event<'_>) {
        match event {
            Event::Log { line, .. } => {
                let handle = match line.stream {
                    LogStream::Out => &self.out,
                    LogStream::Err | LogStream::Node => &self.err,
                };
                handle.push(&record(self.format, line));
            }
            other => self.format.show(other),
        }
    }
}

/// Formats a line of the log as a record, with its end.
fn record(format: LogFormat, line: &LogLine) -> String {
    match format {
        LogFormat::Text => format!("{}\n", TabbedLine(&line.text)),
        LogFormat::Json => {
            // Strings and numbers always serialise.
            let json = serde_json::to_string(line).unwrap_or_default();
            format!("{}\n", Json(json))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_record_is_always_one_line() {
        let bytes = b"a\tb\x1b[2J\r\n{\"stream\":\"node\"}\xff\xe2\x80\xa8end";
        let line = LogLine::new(UNIX_EPOCH, 7, LogStream::Out, bytes);
        for format in [LogFormat::Text, LogFormat::Json] {
            let record = record(format, &line);
            assert_eq!(record.matches('\n').count(), 1, "{record:?}");
            assert!(
                record.ends_with('\n') && !record.contains('\x1b'),
                "{record:?}"
            );
            assert!(!record.contains(['\r', '\u{2028}']), "{record:?}");
        }
        let json: serde_json::Value =
            serde_json::from_str(&record(LogFormat::Json, &line)).unwrap();
        assert_eq!(
            (&json["stream"], &json["instance"]),
            (&"out".into(), &7.into())
        );
    }
}
