//! A function's log: what its instances write and what the node says of them.
//!
//! The newest lines are in memory, for `faasw logs`; with a data directory all
//! lines also go to a file per function. Everything is bounded: the memory, the
//! file, and the rate, so that a function that only writes costs no more disk
//! or memory than any other. A log outlives the versions of its function.

mod file;
mod line;
mod rate;
mod ring;

use std::{
    fmt,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Instant, SystemTime},
};

use faasw_pool::{LogSink, LogStream};

pub use line::LogLine;

use crate::{name::FunctionName, node::Observer};
use file::LogFile;
use rate::{Allowance, Rate};
use ring::Ring;

/// The log of one function. Shared by its instances; lines never interleave.
pub(crate) struct FunctionLog {
    name: FunctionName,
    observer: Observer,
    state: Mutex<State>,
}

struct State {
    ring: Ring,
    rate: Rate,
    file: Option<LogFile>,
}

impl FunctionLog {
    /// An empty log. With a folder, its lines continue the function's file there.
    pub(crate) fn new(name: FunctionName, folder: Option<&Path>, observer: Observer) -> Self {
        let file = folder.map(|folder| LogFile::new(folder, &name));
        Self {
            name,
            observer,
            state: Mutex::new(State {
                ring: Ring::default(),
                rate: Rate::starting(Instant::now()),
                file,
            }),
        }
    }

    /// Adds a line of an instance, or of the node about it.
    pub(crate) fn add(&self, instance: u64, stream: LogStream, bytes: &[u8]) {
        let line = LogLine::new(SystemTime::now(), instance, stream, bytes);
        let allowance = self.state().rate.take(bytes.len(), Instant::now());
        match allowance {
            Allowance::Dropped => {}
            Allowance::Taken => self.write(line),
            Allowance::TakenAfter { dropped } => {
                let note = format!("{dropped} lines dropped: the function writes too fast");
                self.write(LogLine::new(
                    line.time,
                    instance,
                    LogStream::Node,
                    note.as_bytes(),
                ));
                self.write(line);
            }
        }
    }

    fn write(&self, line: LogLine) {
        // Outside the lock, so that an observer may read the log.
        self.observer.log(&self.name, &line);
        let mut state = self.state();
        if let Some(file) = &mut state.file
            && let Err(error) = file.add(&line)
        {
            // The lines stay in memory; the node's next start tries again.
            tracing::error!(function = %self.name, %error, "the log file failed; it is given up");
            state.file = None;
        }
        state.ring.add(line);
    }

    /// The newest lines, oldest first; at most `count`.
    pub(crate) fn newest(&self, count: usize) -> Vec<LogLine> {
        self.state().ring.newest(count)
    }

    /// Deletes the log's files: its function is gone.
    pub(crate) fn delete_files(&self) {
        // Taken, so that a request still under way does not begin it anew.
        if let Some(file) = self.state().file.take() {
            file.delete();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held leaves at worst a line half accounted for.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogSink for FunctionLog {
    fn line(&self, instance: u64, stream: LogStream, line: &[u8]) {
        self.add(instance, stream, line);
    }
}

impl fmt::Debug for FunctionLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionLog")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(folder: Option<&Path>) -> FunctionLog {
        FunctionLog::new(FunctionName::new("f").unwrap(), folder, Observer::default())
    }

    #[test]
    fn lines_are_in_memory_and_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(Some(folder.path()));
        log.add(7, LogStream::Out, b"one");
        log.add(8, LogStream::Err, b"two");
        let texts: Vec<_> = log.newest(9).into_iter().map(|line| line.text).collect();
        assert_eq!(texts, ["one", "two"]);
        let file = std::fs::read_to_string(folder.path().join("f.log")).unwrap();
        let lines: Vec<_> = file.lines().collect();
        assert!(
            lines[0].ends_with(" 7 out one") && lines[1].ends_with(" 8 err two"),
            "{file}"
        );
    }

    #[test]
    fn a_log_is_continued_after_a_restart_and_ends_with_its_function() {
        let folder = tempfile::tempdir().unwrap();
        log(Some(folder.path())).add(1, LogStream::Out, b"before");
        let again = log(Some(folder.path()));
        again.add(2, LogStream::Out, b"after");
        let file = std::fs::read_to_string(folder.path().join("f.log")).unwrap();
        assert_eq!(file.lines().count(), 2);
        again.delete_files();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_function_that_only_writes_is_cut_and_told_so() {
        let log = log(None);
        for _ in 0..1000 {
            log.add(1, LogStream::Out, &[b'x'; 16 << 10]);
        }
        let kept = log.newest(usize::MAX).len();
        assert!(kept < 1000, "{kept} lines of 16 KiB were kept");
    }
}
