//! Reading large data from a disk in parts: by several threads at once, and each part once, however
//! many threads need it.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The state behind each of these locks changes by single assignments, so a panic leaves it
    // valid.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pool of buffers for reading: each reader returns its buffer for the next one.
pub struct BufferPool<R> {
    free: Mutex<Vec<R>>,
    make: fn() -> R,
}

impl<R> fmt::Debug for BufferPool<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool").finish_non_exhaustive()
    }
}

impl<R> BufferPool<R> {
    /// Returns an empty pool; `make` makes a buffer.
    #[must_use]
    pub fn new(make: fn() -> R) -> Self {
        Self {
            free: Mutex::default(),
            make,
        }
    }

    /// Calls `reads` with one of the buffers.
    pub fn with<T>(&self, reads: impl FnOnce(&mut R) -> T) -> T {
        let free = lock(&self.free).pop();
        let mut room = free.unwrap_or_else(self.make);
        let read = reads(&mut room);
        lock(&self.free).push(room);
        read
    }
}

/// Processes all items by up to `readers` threads, including the calling one. Uses fewer if the
/// system cannot start more.
///
/// # Errors
/// Returns one of the errors of `reads`; after an error no further items are begun. Returns an
/// [`io::Error`] if a thread has panicked.
pub fn read_concurrently<T: Sync, E: Send + From<io::Error>>(
    all: &[T],
    readers: usize,
    reads: impl Fn(&T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<(), E> {
        while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            // After an error all threads stop.
            reads(one).inspect_err(|_| next.store(all.len(), Ordering::Relaxed))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let other = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
        let others: Vec<_> = (1..readers).filter_map(other).collect();
        let mut done = work();
        for other in others {
            let other = other.join().unwrap_or_else(|_| {
                let what = "whoever read it has panicked";
                Err(io::Error::other(what).into())
            });
            done = done.and(other);
        }
        done
    })
}

/// Groups ascending numbers into runs of consecutive ones, of at most `most` each.
#[must_use]
pub fn runs(numbers: &[usize], most: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(run) if run.end == *number && run.len() < most => run.end += 1,
            _ => runs.push(*number..*number + 1),
        }
    }
    runs
}

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
pub struct Parts<R> {
    state: Mutex<State>,
    /// Signals that parts are present or that their read failed.
    changed: Condvar,
    rooms: BufferPool<R>,
}

/// Parts that one thread reads. If this is dropped before they are present, they are missing again.
struct ClaimedParts<'a, R> {
    of: &'a Parts<R>,
    parts: Range<usize>,
    became: Part,
}

impl<R> Drop for ClaimedParts<'_, R> {
    fn drop(&mut self) {
        let mut state = lock(&self.of.state);
        state.mark(self.parts.clone(), self.became);
        if self.became == Part::Missing {
            state.next = state.next.min(self.parts.start);
            state.failed = Some(self.parts.clone());
        }
        drop(state);
        self.of.changed.notify_all();
    }
}

impl<R> fmt::Debug for Parts<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Parts").field(&self.state).finish()
    }
}

impl<R> Parts<R> {
    /// Returns `count` parts, of which `there` are present; `make_room` makes a reader's buffer.
    #[must_use]
    pub fn new(count: usize, there: impl IntoIterator<Item = usize>, make_room: fn() -> R) -> Self {
        let mut parts = vec![Part::Missing; count];
        for part in there {
            if let Some(part) = parts.get_mut(part) {
                *part = Part::Loaded;
            }
        }
        let state = State {
            parts,
            next: 0,
            failed: None,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            rooms: BufferPool::new(make_room),
        }
    }

    /// Returns whether a part is not present yet.
    #[must_use]
    pub fn is_missing(&self, part: usize) -> bool {
        let state = lock(&self.state);
        state.parts.get(part).is_some_and(|is| *is != Part::Loaded)
    }

    /// Returns the parts that are not present yet, in order.
    #[must_use]
    pub fn missing(&self) -> Vec<usize> {
        let state = lock(&self.state);
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
        reads: impl Fn(Range<usize>, &mut R) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut at = parts.start;
        while at < parts.end {
            let mut state = lock(&self.state);
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
            let mut coming = ClaimedParts {
                of: self,
                parts: run.clone(),
                became: Part::Missing,
            };
            self.rooms.with(|room| reads(run.clone(), room))?;
            coming.became = Part::Loaded;
            drop(coming);
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
        reads: impl Fn(Range<usize>, &mut R) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut state = lock(&self.state);
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
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_parts_are_read_together_up_to_a_bound() {
        assert_eq!(runs(&[], 3), Vec::<Range<usize>>::new());
        assert_eq!(runs(&[0, 1, 2, 3, 7, 8, 10], 3), [0..3, 3..4, 7..9, 10..11]);
    }

    #[test]
    fn each_is_done_once_and_none_is_begun_behind_one_that_failed() {
        for readers in 0..5 {
            let all: Vec<usize> = (0..100).collect();
            let done = Mutex::new(Vec::new());
            let note = |number: usize| -> io::Result<()> {
                lock(&done).push(number);
                Ok(())
            };
            read_concurrently(&all, readers, |number| note(*number)).unwrap();
            let mut seen = std::mem::take(&mut *lock(&done));
            seen.sort_unstable();
            assert_eq!(seen, all);
            let failed = read_concurrently(&all, readers, |number| match number {
                30 => Err(io::Error::other("a bad block")),
                number => note(*number),
            });
            assert_eq!(failed.unwrap_err().to_string(), "a bad block");
            // With further threads the order depends on their speed.
            assert!(readers > 1 || lock(&done).len() == 30);
        }
    }

    #[test]
    fn a_reader_that_panics_is_an_error() {
        // The calling thread continues only when another has panicked.
        let (sender, panicked) = std::sync::mpsc::channel();
        let (sender, panicked) = (Mutex::new(sender), Mutex::new(panicked));
        let caller = thread::current().id();
        let read = read_concurrently(&[0, 1], 2, |_| -> io::Result<()> {
            if thread::current().id() == caller {
                lock(&panicked).recv().map_err(io::Error::other)
            } else {
                lock(&sender).send(()).map_err(io::Error::other)?;
                panic!("this panic is a test's")
            }
        });
        assert!(read.unwrap_err().to_string().contains("panicked"));
    }

    #[test]
    fn several_bring_each_part_once_and_all_hear_of_one_that_does_not_come() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..50 {
            let count = random.usize(1..60);
            let parts = Parts::new(count, [0], || ());
            let bad = random.usize(1..2 * count + 1);
            let read = Mutex::new(vec![0; count]);
            let reads = |run: Range<usize>, (): &mut ()| -> io::Result<()> {
                if run.contains(&bad) {
                    return Err(io::Error::other("a bad block"));
                }
                run.for_each(|part| lock(&read)[part] += 1);
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
            let read = lock(&read);
            assert!(read.iter().all(|times| *times <= 1), "{read:?}");
            assert_eq!(read[0], 0, "it was there");
            assert_eq!(parts.is_missing(bad), bad < count);
        }
    }
}
