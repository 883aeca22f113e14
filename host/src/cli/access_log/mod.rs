//! `--access-log`: a line of JSON for each request, which no request waits for.
//!
//! A thread of its own writes. Lines wait for it within a bound; those beyond it are dropped and
//! counted, and the log itself says how many: `{"time":…,"dropped":…}`.

mod file;
mod lines;

use std::{
    io,
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, SystemTime},
};

use faasw::AccessRecord;
use faasw_control::spelling;
use faasw_text::Json;

use self::{file::AccessFile, lines::Lines};
use super::exit::Exit;

/// What stands for standard output in a file's place.
pub const STDOUT: &str = "-";

/// Bytes of lines that wait to be written: some ten thousand of them.
const WAITING_BYTES: usize = 4 << 20;

/// How long a log that could not be written is left alone: mostly its disk is full.
const REST: Duration = Duration::from_secs(10);

/// How long the end waits for what is left to be written.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// An access log. What is left is written when it is dropped, if that goes at once.
#[derive(Debug)]
pub struct AccessLog(Arc<Shared>);

/// Where requests are told to the log.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whole lines.
    waiting: Vec<u8>,
    /// How many there was no room for since the last that were taken.
    dropped: u64,
    /// No more will come.
    is_closed: bool,
    /// The thread has ended.
    has_ended: bool,
}

impl AccessLog {
    /// A log in this file, or on standard output.
    ///
    /// # Errors
    /// When it cannot be written, or the system gives no thread.
    pub fn open(path: &Path) -> Result<Self, Exit> {
        let failed = |error: io::Error| {
            let path = path.display();
            Exit::failure(format_args!(
                "the access log {path} cannot be written: {error}"
            ))
            .hint("its folder has to be there, and its user's who runs the node")
        };
        if path == Path::new(STDOUT) {
            let mut written = Lines::default();
            return Self::new(move |lines: &[u8]| written.write(&mut io::stdout().lock(), lines))
                .map_err(failed);
        }
        let mut file = AccessFile::open(path).map_err(failed)?;
        Self::new(move |lines: &[u8]| file.add(lines)).map_err(failed)
    }

    /// A log whose lines `write` takes, many at a time.
    fn new(write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static) -> io::Result<Self> {
        let log = Self(Arc::default());
        let shared = log.0.clone();
        thread::Builder::new()
            .name("faasw-access".to_owned())
            .spawn(move || {
                shared.write_with(write);
                let mut state = shared.state();
                state.has_ended = true;
                state.waiting = Vec::new();
                shared.changed.notify_all();
            })?;
        Ok(log)
    }

    /// Where requests are told to it.
    pub fn recorder(&self) -> Recorder {
        Recorder(self.0.clone())
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_closed = true;
        self.0.changed.notify_all();
        let ended = self
            .0
            .changed
            .wait_timeout_while(state, LAST_WAIT, |state| !state.has_ended);
        if ended.is_ok_and(|(_, waited)| waited.timed_out()) {
            tracing::warn!(
                "the last requests are not in the access log: it cannot be written at once"
            );
        }
    }
}

impl Recorder {
    /// Has a request written, or drops it where too much waits.
    pub fn add(&self, record: &AccessRecord) {
        // Strings and numbers always serialise.
        let json = serde_json::to_string(record).unwrap_or_default();
        self.push(&format!("{}\n", Json(json)));
    }

    fn push(&self, line: &str) {
        let mut state = self.0.state();
        if state.has_ended || state.is_closed {
            return;
        }
        if state.waiting.len() + line.len() > WAITING_BYTES {
            state.dropped += 1;
            return;
        }
        state.waiting.extend_from_slice(line.as_bytes());
        drop(state);
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held leaves at worst a line half accounted for.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes lines as they come, until no more will.
    fn write_with(&self, mut write: impl FnMut(&[u8]) -> io::Result<()>) {
        let mut lines = Vec::new();
        // Of those that failed, which are told with the next.
        let mut lost = 0;
        let mut has_failed = false;
        while let Some(dropped) = self.next(&mut lines) {
            let dropped = dropped + lost;
            let end = lines.len();
            if dropped > 0 {
                let time = spelling::time::text(SystemTime::now());
                let note = format!("{{\"time\":\"{time}\",\"dropped\":{dropped}}}\n");
                lines.extend_from_slice(note.as_bytes());
            }
            match write(&lines) {
                Ok(()) => {
                    lost = 0;
                    has_failed = false;
                    if dropped > 0 {
                        tracing::warn!(dropped, "requests are not in the access log");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    tracing::warn!("nobody reads the access log any more: it ends");
                    return;
                }
                Err(error) => {
                    let count = lines.iter().take(end).filter(|byte| **byte == b'\n');
                    lost = dropped + count.count() as u64;
                    // Said once, not every time.
                    if !has_failed {
                        tracing::error!(%error, "the access log was not written; trying again from time to time");
                    }
                    has_failed = true;
                    self.rest();
                }
            }
            lines.clear();
        }
    }

    /// Takes what waits into `lines`, and how many lines were dropped; nothing when no more will
    /// come.
    fn next(&self, lines: &mut Vec<u8>) -> Option<u64> {
        let has_nothing =
            |state: &mut State| state.waiting.is_empty() && state.dropped == 0 && !state.is_closed;
        let mut state = self
            .changed
            .wait_while(self.state(), has_nothing)
            .unwrap_or_else(PoisonError::into_inner);
        if state.waiting.is_empty() && state.dropped == 0 {
            return None;
        }
        std::mem::swap(&mut state.waiting, lines);
        Some(std::mem::take(&mut state.dropped))
    }

    /// Lets a disk be for a while, or until the end.
    fn rest(&self) {
        let rested = self
            .changed
            .wait_timeout_while(self.state(), REST, |state| !state.is_closed);
        drop(rested);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A log that is written when the test says so, and what was written.
    fn held() -> (
        AccessLog,
        mpsc::Sender<io::Result<()>>,
        mpsc::Receiver<String>,
    ) {
        let (go, may) = mpsc::channel::<io::Result<()>>();
        let (wrote, written) = mpsc::channel();
        let log = AccessLog::new(move |lines: &[u8]| {
            let _ = wrote.send(String::from_utf8(lines.to_vec()).unwrap());
            may.recv().unwrap_or(Ok(()))
        });
        (log.unwrap(), go, written)
    }

    #[test]
    fn nobody_waits_for_who_does_not_write_and_what_is_dropped_is_counted() {
        let (log, go, written) = held();
        let recorder = log.recorder();
        recorder.push("first\n");
        // It is being written, and not done.
        assert_eq!(written.recv().unwrap(), "first\n");
        let line = format!("{}\n", "x".repeat(1023));
        let fitting = WAITING_BYTES / line.len();
        for _ in 0..fitting + 7 {
            recorder.push(&line);
        }
        go.send(Ok(())).unwrap();
        let second = written.recv().unwrap();
        let lines: Vec<_> = second.lines().collect();
        assert_eq!(lines.len(), fitting + 1);
        let last: serde_json::Value = serde_json::from_str(lines[fitting]).unwrap();
        assert_eq!(last["dropped"], 7);
        assert!(last["time"].is_string());
        // There is room again.
        recorder.push("third\n");
        go.send(Ok(())).unwrap();
        assert_eq!(written.recv().unwrap(), "third\n");
        go.send(Ok(())).unwrap();
    }

    #[test]
    fn all_that_was_told_is_written_before_the_end() {
        let (log, go, written) = held();
        drop(go);
        let recorder = log.recorder();
        for number in 0..1000 {
            recorder.push(&format!("{number}\n"));
        }
        drop(log);
        recorder.push("late\n");
        let all: String = written.iter().collect();
        let numbers: Vec<usize> = all.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn lines_that_failed_are_counted_when_it_goes_again() {
        let (log, go, written) = held();
        let recorder = log.recorder();
        recorder.push("one\n");
        assert_eq!(written.recv().unwrap(), "one\n");
        recorder.push("two\n");
        go.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
        // The end is not kept waiting by a disk that rests.
        drop(go);
        drop(log);
        let last = written.recv().unwrap();
        let lines: Vec<_> = last.lines().collect();
        assert_eq!((lines.len(), lines[0]), (2, "two"));
        let told: serde_json::Value = serde_json::from_str(lines[1]).unwrap();
        assert_eq!(told["dropped"], 1);
    }

    #[test]
    fn a_reader_who_has_gone_away_ends_it() {
        let (log, go, written) = held();
        let recorder = log.recorder();
        recorder.push("one\n");
        go.send(Err(io::ErrorKind::BrokenPipe.into())).unwrap();
        assert_eq!(written.iter().collect::<String>(), "one\n");
        let state = log
            .0
            .changed
            .wait_while(log.0.state(), |state| !state.has_ended);
        drop(state);
        recorder.push("two\n");
        assert!(log.0.state().waiting.is_empty());
    }
}
