//! The numbered parts of something on a disk, and which of them are present.

use std::ops::Range;
use std::sync::{Condvar, MutexGuard, PoisonError};

use faasw_common::Lock;

use super::buffers::{AlignedBuffer, BufferPool};

/// The state of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The part is on the disk.
    Missing,
    /// The part is being read.
    Loading,
    /// The part is present.
    Loaded,
}

#[derive(Debug)]
struct State {
    parts: Vec<Part>,
    /// All parts before this one are present or being read.
    next: usize,
    /// The parts of the last read that failed: the next reader tries them first.
    failed: Option<Range<usize>>,
}

impl State {
    fn is(&self, part: usize, what: Part) -> bool {
        self.parts.get(part).copied() == Some(what)
    }

    fn mark(&mut self, parts: Range<usize>, what: Part) {
        if let Some(parts) = self.parts.get_mut(parts) {
            parts.fill(what);
        }
    }

    /// Returns the first missing parts, at most `most` of them.
    fn first_missing(&mut self, most: usize) -> Option<Range<usize>> {
        if let Some(failed) = self.failed.clone()
            && let Some(start) = failed.clone().find(|at| self.is(*at, Part::Missing))
        {
            let end = (start..failed.end).find(|at| !self.is(*at, Part::Missing));
            return Some(start..end.unwrap_or(failed.end));
        }
        let count = self.parts.len();
        while self.next < count && !self.is(self.next, Part::Missing) {
            self.next += 1;
        }
        let most = count.min(self.next + most);
        let mut run = self.next..most;
        let end = run.find(|at| !self.is(*at, Part::Missing)).unwrap_or(most);
        (self.next < end).then_some(self.next..end)
    }
}

/// The numbered parts of something, some of which are still on the disk. Several threads may load
/// them at once: each part is read by one thread, and the others wait for it.
#[derive(Debug)]
pub struct Parts {
    state: Lock<State>,
    /// Signals that parts are present or that their read failed.
    changed: Condvar,
    buffers: BufferPool,
}

/// Parts that one thread reads. If this is dropped before they are present, they are missing again.
struct ClaimedParts<'a> {
    of: &'a Parts,
    parts: Range<usize>,
    became: Part,
}

impl Drop for ClaimedParts<'_> {
    fn drop(&mut self) {
        let mut state = self.of.state.lock();
        state.mark(self.parts.clone(), self.became);
        if self.became == Part::Missing {
            state.next = state.next.min(self.parts.start);
            state.failed = Some(self.parts.clone());
        }
        drop(state);
        self.of.changed.notify_all();
    }
}

impl Parts {
    /// Returns `count` parts that are missing.
    pub fn new(count: usize) -> Self {
        let state = State {
            parts: vec![Part::Missing; count],
            next: 0,
            failed: None,
        };
        Self {
            state: Lock::new(state),
            changed: Condvar::new(),
            buffers: BufferPool::default(),
        }
    }

    /// Returns whether a part is not present yet.
    pub fn is_missing(&self, part: usize) -> bool {
        let state = self.state.lock();
        state.parts.get(part).is_some_and(|is| *is != Part::Loaded)
    }

    /// Returns the parts that are not present yet, in order.
    pub fn missing(&self) -> Vec<usize> {
        let state = self.state.lock();
        let numbered = state.parts.iter().enumerate();
        let missing = numbered.filter(|(_, part)| **part != Part::Loaded);
        missing.map(|(number, _)| number).collect()
    }

    /// Loads these parts, or waits until other threads have loaded them. Consecutive missing parts
    /// are read by one call of `reads`.
    ///
    /// # Errors
    /// Returns the error of `reads`. Its parts are missing then, and [`Parts::load_next`] tries
    /// them next.
    pub fn load<E>(
        &self,
        parts: Range<usize>,
        reads: impl Fn(Range<usize>, &mut AlignedBuffer) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut at = parts.start;
        while at < parts.end {
            let mut state = self.state.lock();
            while state.is(at, Part::Loading) {
                state = self.wait(state);
            }
            let mut run = at..parts.end;
            let end = run.find(|at| !state.is(*at, Part::Missing));
            let run = at..end.unwrap_or(parts.end);
            if run.is_empty() {
                at += 1;
                continue;
            }
            state.mark(run.clone(), Part::Loading);
            drop(state);
            let mut claimed = ClaimedParts {
                of: self,
                parts: run.clone(),
                became: Part::Missing,
            };
            self.buffers.with(|buffer| reads(run.clone(), buffer))?;
            claimed.became = Part::Loaded;
            drop(claimed);
            at = run.end;
        }
        Ok(())
    }

    /// Loads the first missing parts, at most `most`, and returns whether there were any. If all
    /// remaining parts are being read by other threads, waits for them.
    ///
    /// # Errors
    /// Returns the error of `reads`, as [`Parts::load`] does.
    pub fn load_next<E>(
        &self,
        most: usize,
        reads: impl Fn(Range<usize>, &mut AlignedBuffer) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut state = self.state.lock();
        loop {
            if let Some(run) = state.first_missing(most) {
                drop(state);
                self.load(run, reads)?;
                return Ok(true);
            }
            if !state.parts.contains(&Part::Loading) {
                return Ok(false);
            }
            state = self.wait(state);
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        // The state is valid between any two statements.
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::thread;

    use super::*;

    #[test]
    fn several_threads_load_each_part_once_and_all_get_the_error_of_one() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..50 {
            let count = random.usize(1..60);
            let parts = Parts::new(count);
            let bad = random.usize(..2 * count);
            let read = Lock::new(vec![0; count]);
            let reads = |run: Range<usize>, _: &mut AlignedBuffer| -> io::Result<()> {
                if run.contains(&bad) {
                    return Err(io::Error::other("a bad block"));
                }
                run.for_each(|part| read.lock()[part] += 1);
                Ok(())
            };
            let wanted: Vec<_> = (0..4)
                .map(|_| {
                    let start = random.usize(..count);
                    start..random.usize(start..=count)
                })
                .collect();
            thread::scope(|scope| {
                for wanted in wanted {
                    let (parts, reads) = (&parts, &reads);
                    scope.spawn(move || {
                        let is_bad = wanted.contains(&bad);
                        assert_eq!(parts.load(wanted.clone(), reads).is_err(), is_bad);
                        assert!(is_bad || wanted.into_iter().all(|part| !parts.is_missing(part)));
                    });
                }
                for _ in 0..2 {
                    scope.spawn(|| while let Ok(true) = parts.load_next(4, reads) {});
                }
            });
            // The thread that hit the bad part has left others behind. Until the end it is the only
            // part that cannot be read.
            let end = loop {
                match parts.load_next(4, reads) {
                    Ok(true) => {}
                    end => break end,
                }
            };
            assert_eq!(end.is_err(), bad < count);
            let read = read.lock();
            assert!(read.iter().all(|times| *times <= 1), "{read:?}");
            assert_eq!(parts.is_missing(bad), bad < count);
        }
    }
}
