//! A function's log: the lines that its instances write, and the node's lines about them.
//!
//! The newest lines are in memory, for `faasw logs`. With a data directory, all lines also go to a
//! file for each function, and the next node reads its end. Memory, file and rate are bounded, so
//! that a function that only writes costs no more disk or memory than any other. A log outlives the
//! versions of its function.

mod file;
mod limiter;
mod observer;
mod rate;
mod recent;

use std::{
    fmt,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use faasw_client::{FunctionName, LogLine, LogPage};
use faasw_pool::{LogSink, LogStream};
use tokio::sync::Notify;

use crate::message::Correlation;

pub use limiter::EventLimiter;
pub use observer::Event;

pub(crate) use limiter::suppressed;
pub(crate) use observer::Observer;

use file::LogFile;
use rate::LineRate;
use recent::RecentLines;

/// Pause after a file could not be written: its disk is usually full.
const FILE_REST: Duration = Duration::from_secs(10);

/// The log of one function. Its instances share it; lines never interleave.
pub(crate) struct FunctionLog {
    name: FunctionName,
    observer: Observer,
    state: Mutex<LogState>,
    /// Wakes tasks that wait for a line.
    added: Notify,
}

struct LogState {
    recent: RecentLines,
    rate: LineRate,
    file: Option<LogFile>,
    /// Whether the recent lines include those that the file had when the node started. The file is
    /// read on the first read or write of the log, not for every function at the start.
    continued: bool,
    /// When writing the file last failed.
    failed: Option<Instant>,
    deleted: bool,
}

impl FunctionLog {
    /// Returns an empty log. With a folder, its lines continue the function's file there.
    pub(crate) fn new(name: FunctionName, folder: Option<&Path>, observer: Observer) -> Self {
        let file = folder.map(|folder| LogFile::new(folder, &name));
        Self {
            name,
            observer,
            state: Mutex::new(LogState {
                recent: RecentLines::default(),
                rate: LineRate::starting(Instant::now()),
                continued: file.is_none(),
                file,
                failed: None,
                deleted: false,
            }),
            added: Notify::new(),
        }
    }

    /// Adds a line that an instance has written, or that the node writes about the instance and its
    /// request.
    pub(crate) fn add(
        &self,
        instance: u64,
        request: Option<&Correlation>,
        stream: LogStream,
        bytes: &[u8],
    ) {
        let admitted = self.state().rate.take(bytes.len(), Instant::now());
        // A dropped line is not even formatted, because it is dropped for its cost.
        let Some(dropped) = admitted else { return };
        let time = SystemTime::now();
        if dropped > 0 {
            let note = format!("{dropped} lines dropped: the function writes too fast");
            let note = LogLine::new(time, instance, LogStream::Node, note.as_bytes());
            self.write(note);
        }
        let line = LogLine::new(time, instance, stream, bytes);
        self.write(match request {
            Some(correlation) => line.of_request(correlation.request_id, correlation.trace()),
            None => line,
        });
    }

    fn write(&self, line: LogLine) {
        // The observer runs outside of the lock, so that it may read the log.
        self.observer.log(&self.name, &line);
        let mut state = self.continued();
        state.write_file(&self.name, &line);
        state.recent.add(line);
        drop(state);
        self.added.notify_waiters();
    }

    /// Returns the newest lines, at most `count`.
    pub(crate) fn newest(&self, count: usize) -> LogPage {
        self.continued().recent.newest(count)
    }

    /// Returns the lines after a place; waits until there is one.
    pub(crate) async fn after(&self, place: u64) -> LogPage {
        loop {
            let added = self.added.notified();
            tokio::pin!(added);
            // Enabled before the check, so that no line is missed in between.
            added.as_mut().enable();
            if let Some(page) = self.continued().recent.after(place) {
                return page;
            }
            added.await;
        }
    }

    /// Deletes the log's files, because its function was removed.
    pub(crate) fn delete_files(&self) {
        let mut state = self.state();
        state.deleted = true;
        // The file is taken, so that a request that is still under way does not create it again.
        if let Some(file) = state.file.take() {
            file.delete();
        }
    }

    /// Whether the function was removed: a new function of this name needs a new log.
    pub(crate) fn is_deleted(&self) -> bool {
        self.state().deleted
    }

    /// Returns the state, with the lines of earlier nodes.
    fn continued(&self) -> MutexGuard<'_, LogState> {
        let mut state = self.state();
        if !state.continued {
            state.continued = true;
            let tail = state.file.as_ref();
            match tail.map(|file| file.tail(recent::BYTES as u64)) {
                Some(Ok(lines)) => lines.into_iter().for_each(|line| state.recent.add(line)),
                Some(Err(error)) => {
                    tracing::warn!(function = %self.name, %error, "the log file cannot be read");
                }
                None => {}
            }
        }
        state
    }

    fn state(&self) -> MutexGuard<'_, LogState> {
        // After a panic while the lock was held, at most one line is counted incompletely.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogState {
    fn write_file(&mut self, name: &FunctionName, line: &LogLine) {
        let Some(file) = &mut self.file else { return };
        if self.failed.is_some_and(|when| when.elapsed() < FILE_REST) {
            return;
        }
        match file.add(line) {
            Ok(()) => self.failed = None,
            Err(error) => {
                // The lines stay in memory meanwhile. The failure is reported once, not for every
                // line.
                if self.failed.is_none() {
                    tracing::error!(function = %name, %error, "the log file cannot be written; the \
                         node retries");
                }
                self.failed = Some(Instant::now());
            }
        }
    }
}

impl LogSink for FunctionLog {
    /// Adds a line of the function's seed, which is made for no request.
    fn line(&self, instance: u64, stream: LogStream, line: &[u8]) {
        self.add(instance, None, stream, line);
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
        log.add(7, None, LogStream::Out, b"one");
        log.add(8, None, LogStream::Err, b"two");
        let texts: Vec<_> = log
            .newest(9)
            .lines
            .into_iter()
            .map(|line| line.text)
            .collect();
        assert_eq!(texts, ["one", "two"]);
        let file = std::fs::read_to_string(folder.path().join("f.log")).unwrap();
        let lines: Vec<_> = file.lines().collect();
        assert!(
            lines[0].ends_with(" 7 out one") && lines[1].ends_with(" 8 err two"),
            "{file}"
        );
    }

    #[test]
    fn a_log_continues_after_a_restart_until_its_function_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        log(Some(folder.path())).add(1, None, LogStream::Out, b"before");
        let again = log(Some(folder.path()));
        again.add(2, None, LogStream::Out, b"after");
        let file = std::fs::read_to_string(folder.path().join("f.log")).unwrap();
        assert_eq!(file.lines().count(), 2);
        let texts = |log: &FunctionLog| {
            let lines = log.newest(9).lines.into_iter();
            lines.map(|line| line.text).collect::<Vec<_>>()
        };
        assert_eq!(texts(&again), ["before", "after"]);
        assert_eq!(texts(&log(Some(folder.path()))), ["before", "after"]);
        again.delete_files();
        assert!(again.is_deleted());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn lines_of_a_request_have_its_id_in_memory_and_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(Some(folder.path()));
        let correlation = Correlation::new(&http::HeaderMap::new(), Some("mine".parse().unwrap()));
        // The id in the function's own text does not count.
        log.add(7, Some(&correlation), LogStream::Out, b"7/theirs out x");
        let lines = log.newest(9).lines;
        let ids: Vec<_> = lines.iter().map(|line| line.request_id).collect();
        assert_eq!(ids, [Some(correlation.request_id)]);
        let file = std::fs::read_to_string(folder.path().join("f.log")).unwrap();
        assert!(file.ends_with(" 7/mine out 7/theirs out x\n"), "{file}");
    }

    #[tokio::test]
    async fn a_waiting_reader_receives_the_next_line() {
        let log = std::sync::Arc::new(log(None));
        log.add(1, None, LogStream::Out, b"one");
        let place = log.newest(9).next;
        let waiting = {
            let log = log.clone();
            tokio::spawn(async move { log.after(place).await })
        };
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        log.add(1, None, LogStream::Out, b"two");
        let page = waiting.await.unwrap();
        assert_eq!((page.lines.len(), page.next), (1, place + 1));
        assert_eq!(page.lines[0].text, "two");
    }

    #[test]
    fn excess_log_lines_are_dropped_and_the_log_says_so() {
        let log = log(None);
        for _ in 0..1000 {
            log.add(1, None, LogStream::Out, &[b'x'; 16 << 10]);
        }
        let kept = log.newest(usize::MAX).lines.len();
        assert!(kept < 1000, "{kept} lines of 16 KiB were kept");
    }
}
