//! Lines for standard output that are written without blocking the node.
//!
//! A pipe whose reader has stopped accepts 64 KiB and then blocks its writer. `up --watch` must not
//! block, because it serves requests. So a thread of its own writes, from a bounded queue of lines.
//! If the queue is full, the oldest line is dropped: preferably one of the same function, which the
//! new line makes stale.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use faasw::FunctionName;
use faasw_common::text::Json;
use serde::Serialize;

use super::{exit::Exit, output::say};

/// Maximum number of waiting lines, enough for a burst of saved files.
const LINES_MOST: usize = 64;

/// How long dropping the printer waits for the remaining lines to be written.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Writes lines when their reader takes them. Dropping it writes the remaining lines if the reader
/// takes them in time.
#[derive(Debug)]
pub struct Printer(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<(FunctionName, String)>,
    /// Whether lines were dropped since the last one was written.
    has_left_out: bool,
    /// Whether no more lines will be added.
    is_closed: bool,
    /// Whether the thread has ended.
    has_ended: bool,
}

impl Printer {
    /// Creates a printer for standard output.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn of_stdout() -> Result<Self, Exit> {
        Self::new(io::stdout()).map_err(|error| {
            Exit::failure(format_args!(
                "cannot start a thread for standard output: {error}"
            ))
        })
    }

    fn new(mut out: impl Write + Send + 'static) -> io::Result<Self> {
        let printer = Self(Arc::default());
        let shared = printer.0.clone();
        thread::Builder::new()
            .name("faasw-output".to_owned())
            .spawn(move || {
                if let Err(error) = shared.write_to(&mut out) {
                    // A reader that has gone away is not a failure.
                    if error.kind() != io::ErrorKind::BrokenPipe {
                        say(format_args!("standard output cannot be written: {error}"));
                    }
                }
                let mut state = shared.state();
                state.has_ended = true;
                state.lines.clear();
                shared.changed.notify_all();
            })?;
        Ok(printer)
    }

    /// Adds a value as a line of JSON, and writes it when the reader takes it.
    ///
    /// # Errors
    /// Returns an error if the value cannot be serialised.
    pub fn print_json(&self, of: &FunctionName, value: &impl Serialize) -> Result<(), Exit> {
        let json = serde_json::to_string(value).map_err(Exit::failure)?;
        self.print(of, format!("{}\n", Json(json)));
        Ok(())
    }

    fn print(&self, of: &FunctionName, line: String) {
        let mut state = self.0.state();
        if state.has_ended {
            return;
        }
        if state.lines.len() >= LINES_MOST {
            let stale = state.lines.iter().position(|(other, _)| other == of);
            state.lines.remove(stale.unwrap_or(0));
            if !state.has_left_out {
                state.has_left_out = true;
                say("standard output is not read: lines are dropped");
            }
        }
        state.lines.push_back((of.clone(), line));
        self.0.changed.notify_all();
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_closed = true;
        self.0.changed.notify_all();
        let ended = self
            .0
            .changed
            .wait_timeout_while(state, LAST_WAIT, |state| !state.has_ended);
        // A reader that is slower than this loses the rest.
        drop(ended);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes lines as they arrive, until the printer is closed.
    fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        while let Some(line) = self.next() {
            out.write_all(line.as_bytes())?;
            out.flush()?;
            self.state().has_left_out = false;
        }
        Ok(())
    }

    fn next(&self) -> Option<String> {
        let waiting = self.changed.wait_while(self.state(), |state| {
            state.lines.is_empty() && !state.is_closed
        });
        let mut state = waiting.unwrap_or_else(PoisonError::into_inner);
        state.lines.pop_front().map(|(_, line)| line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, pipe};

    fn name(text: &str) -> FunctionName {
        FunctionName::new(text).unwrap()
    }

    #[test]
    fn a_stalled_reader_blocks_no_producer_and_gets_the_newest_lines() {
        let (reader, writer) = pipe().unwrap();
        let printer = Printer::new(writer).unwrap();
        // This is far more than pipe and queue hold together.
        let padding = " ".repeat(4096);
        let of_other = "other\n".to_owned();
        let last = 8 * LINES_MOST;
        for number in 0..=last {
            printer.print(&name("f"), format!("{number}{padding}\n"));
            if number == last / 2 {
                printer.print(&name("other"), of_other.clone());
            }
        }
        let closing = thread::spawn(move || drop(printer));
        let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
        let read: Vec<String> = lines.by_ref().map(|line| line.trim().to_owned()).collect();
        closing.join().unwrap();
        assert!(read.len() < last, "{}", read.len());
        // The line of another function is not dropped for these lines.
        assert!(read.contains(&"other".to_owned()), "{read:?}");
        let numbers: Vec<usize> = read.iter().filter_map(|line| line.parse().ok()).collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
        assert_eq!(numbers.last(), Some(&last));
    }

    #[test]
    fn a_reader_gets_all_lines_in_order_before_the_end() {
        let (reader, writer) = pipe().unwrap();
        let printer = Printer::new(writer).unwrap();
        for number in 0..LINES_MOST {
            printer.print(&name("f"), format!("{number}\n"));
        }
        drop(printer);
        let read: Vec<usize> = BufReader::new(reader)
            .lines()
            .map(|line| line.unwrap().parse().unwrap())
            .collect();
        assert_eq!(read, (0..LINES_MOST).collect::<Vec<_>>());
    }

    #[test]
    fn a_closed_pipe_blocks_no_producer() {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let printer = Printer::new(writer).unwrap();
        printer.print(&name("f"), "line\n".to_owned());
        let mut state = printer.0.state();
        while !state.has_ended {
            state = printer.0.changed.wait(state).unwrap();
        }
        drop(state);
        printer.print(&name("f"), "line\n".to_owned());
        assert!(printer.0.state().lines.is_empty());
    }
}
