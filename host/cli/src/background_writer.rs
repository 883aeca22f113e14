//! A log whose lines are written by a thread of its own, so that its producers never wait.
//!
//! Otherwise a pipe whose reader has stopped, or a full disk, would block the threads that serve
//! requests. A bounded number of bytes waits for the thread. Further lines are dropped and counted,
//! and the log itself reports the count.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// Maximum size of the waiting lines in bytes, which is enough for about ten thousand lines.
const WAITING_BYTES: usize = 4 << 20;

/// Pause after a failed write. The usual reason is a full disk.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// How long dropping the log waits for the remaining lines to be written.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// The description of a log for messages.
#[derive(Clone, Copy, Debug)]
pub struct LogDescription {
    /// The name of the log.
    pub name: &'static str,
    /// The name of its lines.
    pub lines: &'static str,
    /// The name of the thread that writes it.
    pub thread: &'static str,
    /// Formats a line, with its end, that states how many lines are missing.
    pub dropped: fn(u64) -> String,
}

/// A log that is written by a thread. Dropping it waits for [`LAST_WAIT`] at most until the
/// remaining lines are written.
#[derive(Debug)]
pub struct BackgroundWriter {
    shared: Arc<Shared>,
    description: LogDescription,
}

/// A handle by which lines are added.
#[derive(Clone, Debug)]
pub struct Handle(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Complete lines.
    waiting: Vec<u8>,
    /// The number of lines that were dropped since the thread last took the waiting lines.
    dropped: u64,
    /// Whether no more lines will be added.
    is_closed: bool,
    /// Whether the thread has ended.
    has_ended: bool,
}

impl BackgroundWriter {
    /// Creates a log whose thread passes many lines at a time to `write`.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn new(
        description: LogDescription,
        write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let log = Self {
            shared: shared.clone(),
            description,
        };
        thread::Builder::new()
            .name(description.thread.to_owned())
            .spawn(move || {
                shared.write_with(description, write);
                let mut state = shared.state();
                state.has_ended = true;
                state.waiting = Vec::new();
                shared.changed.notify_all();
            })?;
        Ok(log)
    }

    /// Returns a handle by which lines are added.
    pub fn handle(&self) -> Handle {
        Handle(self.shared.clone())
    }
}

impl Drop for BackgroundWriter {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.is_closed = true;
        self.shared.changed.notify_all();
        let ended = self
            .shared
            .changed
            .wait_timeout_while(state, LAST_WAIT, |state| !state.has_ended);
        if ended.is_ok_and(|(_, waited)| waited.timed_out()) {
            let LogDescription { name, lines, .. } = self.description;
            tracing::warn!(
                "the last {lines} are missing from {name}: it cannot be written in \
                 time"
            );
        }
    }
}

impl Handle {
    /// Adds a line that includes its end, or drops it if too many bytes wait to be written.
    pub fn push(&self, line: &str) {
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
        // After a panic with the lock held, at worst one line is counted wrongly.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes lines as they arrive, until the log is closed.
    fn write_with(
        &self,
        description: LogDescription,
        mut write: impl FnMut(&[u8]) -> io::Result<()>,
    ) {
        let LogDescription {
            name, lines: what, ..
        } = description;
        let mut lines = Vec::new();
        // The number of lines that failed; it is reported with the next lines.
        let mut lost = 0;
        let mut has_failed = false;
        while let Some(dropped) = self.next(&mut lines) {
            let dropped = dropped + lost;
            let end = lines.len();
            if dropped > 0 {
                lines.extend_from_slice((description.dropped)(dropped).as_bytes());
            }
            match write(&lines) {
                Ok(()) => {
                    lost = 0;
                    has_failed = false;
                    if dropped > 0 {
                        tracing::warn!(dropped, "{what} are missing from {name}");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    tracing::warn!("the reader of {name} is gone: no more lines are written");
                    return;
                }
                Err(error) => {
                    let count = lines.iter().take(end).filter(|byte| **byte == b'\n');
                    lost = dropped + count.count() as u64;
                    // The error is logged only once.
                    if !has_failed {
                        tracing::error!(%error, "{name} cannot be written; the node retries");
                    }
                    has_failed = true;
                    self.pause_before_retry();
                }
            }
            lines.clear();
        }
    }

    /// Moves the waiting lines into `lines`, and returns the number of dropped lines. Returns
    /// `None` if the log is closed and empty.
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

    /// Pauses after a failed write, at most until the log is closed.
    fn pause_before_retry(&self) {
        let paused = self
            .changed
            .wait_timeout_while(self.state(), RETRY_PAUSE, |state| !state.is_closed);
        drop(paused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const DESCRIPTION: LogDescription = LogDescription {
        name: "the log",
        lines: "lines",
        thread: "faasw-test",
        dropped: |count| format!("{{\"dropped\":{count}}}\n"),
    };

    /// Returns a log that writes only when the test permits it, and the receiver of what was
    /// written.
    fn blocked_writer() -> (
        BackgroundWriter,
        mpsc::Sender<io::Result<()>>,
        mpsc::Receiver<String>,
    ) {
        let (go, may) = mpsc::channel::<io::Result<()>>();
        let (wrote, written) = mpsc::channel();
        let log = BackgroundWriter::new(DESCRIPTION, move |lines: &[u8]| {
            let _ = wrote.send(String::from_utf8(lines.to_vec()).unwrap());
            may.recv().unwrap_or(Ok(()))
        });
        (log.unwrap(), go, written)
    }

    #[test]
    fn a_stalled_writer_blocks_no_producer_and_dropped_lines_are_counted() {
        let (log, go, written) = blocked_writer();
        let handle = log.handle();
        handle.push("first\n");
        // The line is being written, and the write is not finished.
        assert_eq!(written.recv().unwrap(), "first\n");
        let line = format!("{}\n", "x".repeat(1023));
        let fitting = WAITING_BYTES / line.len();
        for _ in 0..fitting + 7 {
            handle.push(&line);
        }
        go.send(Ok(())).unwrap();
        let second = written.recv().unwrap();
        let lines: Vec<_> = second.lines().collect();
        assert_eq!(lines.len(), fitting + 1);
        let last: serde_json::Value = serde_json::from_str(lines[fitting]).unwrap();
        assert_eq!(last["dropped"], 7);
        // There is room again.
        handle.push("third\n");
        go.send(Ok(())).unwrap();
        assert_eq!(written.recv().unwrap(), "third\n");
        go.send(Ok(())).unwrap();
    }

    #[test]
    fn dropping_the_writer_writes_all_remaining_lines() {
        let (log, go, written) = blocked_writer();
        drop(go);
        let handle = log.handle();
        for number in 0..1000 {
            handle.push(&format!("{number}\n"));
        }
        drop(log);
        handle.push("late\n");
        let all: String = written.iter().collect();
        let numbers: Vec<usize> = all.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn failed_lines_are_counted_once_writing_works_again() {
        let (log, go, written) = blocked_writer();
        let handle = log.handle();
        handle.push("one\n");
        assert_eq!(written.recv().unwrap(), "one\n");
        handle.push("two\n");
        go.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
        // Dropping the log does not wait for the pause after a failure.
        drop(go);
        drop(log);
        let last = written.recv().unwrap();
        let lines: Vec<_> = last.lines().collect();
        assert_eq!((lines.len(), lines[0]), (2, "two"));
        let told: serde_json::Value = serde_json::from_str(lines[1]).unwrap();
        assert_eq!(told["dropped"], 1);
    }

    #[test]
    fn a_closed_pipe_ends_the_writer() {
        let (log, go, written) = blocked_writer();
        let handle = log.handle();
        handle.push("one\n");
        go.send(Err(io::ErrorKind::BrokenPipe.into())).unwrap();
        assert_eq!(written.iter().collect::<String>(), "one\n");
        let shared = &log.shared;
        let state = shared
            .changed
            .wait_while(shared.state(), |state| !state.has_ended);
        drop(state);
        handle.push("two\n");
        assert!(log.shared.state().waiting.is_empty());
    }
}
