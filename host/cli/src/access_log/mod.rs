//! `--access-log`: writes a line of JSON for each request, without delaying requests. The log
//! reports how many lines it dropped as `{"time":…,"dropped":…}`.

mod file;
mod lines;

use std::{io, path::Path, time::SystemTime};

use faasw::AccessRecord;
use faasw_client::spelling;
use faasw_common::text::Json;

use self::file::AccessFile;
pub use self::lines::Lines;
use super::{
    background_writer::{BackgroundWriter, Handle, LogDescription},
    exit::Exit,
};

/// The name that stands for standard output.
pub const STDOUT: &str = "-";

const DESCRIPTION: LogDescription = LogDescription {
    name: "the access log",
    lines: "requests",
    thread: "faasw-access",
    dropped,
};

/// An access log. Dropping it waits up to 1 s until the remaining lines are written.
#[derive(Debug)]
pub struct AccessLog(BackgroundWriter);

/// A handle by which requests are added to the log.
#[derive(Clone, Debug)]
pub struct Recorder(Handle);

impl AccessLog {
    /// Opens a log in this file, or on standard output for [`STDOUT`].
    ///
    /// # Errors
    /// Returns an error if the log cannot be opened or no thread can be started.
    pub fn open(path: &Path) -> Result<Self, Exit> {
        let failed = |error: io::Error| {
            let path = path.display();
            Exit::failure(format_args!(
                "the access log {path} cannot be written: {error}"
            ))
            .hint("its folder must exist and belong to the node's user")
        };
        let writer = if path == Path::new(STDOUT) {
            let mut written = Lines::default();
            let write = move |lines: &[u8]| written.write(&mut io::stdout().lock(), lines);
            BackgroundWriter::new(DESCRIPTION, write)
        } else {
            let mut file = AccessFile::open(path).map_err(failed)?;
            BackgroundWriter::new(DESCRIPTION, move |lines: &[u8]| file.add(lines))
        };
        writer.map(Self).map_err(failed)
    }

    /// Returns a handle by which requests are added.
    pub fn recorder(&self) -> Recorder {
        Recorder(self.0.handle())
    }
}

impl Recorder {
    /// Adds a request, or drops it if too many bytes wait to be written.
    pub fn add(&self, record: &AccessRecord) {
        // Strings and numbers always serialise.
        let json = serde_json::to_string(record).unwrap_or_default();
        self.0.push(&format!("{}\n", Json(json)));
    }
}

fn dropped(count: u64) -> String {
    let time = spelling::time::text(SystemTime::now());
    format!("{{\"time\":\"{time}\",\"dropped\":{count}}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_lines_are_reported_as_json() {
        let line = dropped(7);
        let told: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(told["dropped"], 7);
        assert!(told["time"].is_string() && line.ends_with('\n'));
    }
}
