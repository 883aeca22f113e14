//! Reading large data from a disk in parts: by several threads at once, and each part once, however
//! many threads need it.
//!
//! `parts`: which parts are present; `demand_fill`: filling memory or code while guests use it;
//! `load_progress`: waiting for its end; `buffers`: the buffers of the readers.

mod buffers;
mod demand_fill;
mod load_progress;
mod parts;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

pub use self::buffers::{AlignedBuffer, BufferPool};
pub use self::demand_fill::{DemandFill, PartSource};
pub use self::load_progress::LoadProgress;

/// The size of a part of memory or code, in bytes.
pub const PART: usize = 64 << 10;

/// The number of parts that are read at once: 1 MiB. A disk is not faster with more, and one read
/// is verified while another is under way.
pub const PARTS_AT_ONCE: usize = (1 << 20) / PART;

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
                let what = "a reading thread has panicked";
                Err(io::Error::other(what).into())
            });
            done = done.and(other);
        }
        done
    })
}

/// Calls `load` for each run of consecutive ones of these parts, which are in order. `readers`
/// returns the number of threads for a number of runs.
///
/// # Errors
/// Returns the errors of [`read_concurrently`].
pub fn load_runs<E: Send + From<io::Error>>(
    parts: &[usize],
    readers: impl FnOnce(usize) -> usize,
    load: impl Fn(Range<usize>) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let runs = runs(parts, PARTS_AT_ONCE);
    read_concurrently(&runs, readers(runs.len()), |run| load(run.clone()))
}

/// Groups ascending numbers into runs of consecutive ones, of at most `most` each.
fn runs(numbers: &[usize], most: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(run) if run.end == *number && run.len() < most => run.end += 1,
            _ => runs.push(*number..*number + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use faasw_common::Lock;

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
            let done = Lock::new(Vec::new());
            let note = |number: usize| -> io::Result<()> {
                done.lock().push(number);
                Ok(())
            };
            read_concurrently(&all, readers, |number| note(*number)).unwrap();
            let mut seen = std::mem::take(&mut *done.lock());
            seen.sort_unstable();
            assert_eq!(seen, all);
            let failed = read_concurrently(&all, readers, |number| match number {
                30 => Err(io::Error::other("a bad block")),
                number => note(*number),
            });
            assert_eq!(failed.unwrap_err().to_string(), "a bad block");
            // With further threads the order depends on their speed.
            assert!(readers > 1 || done.lock().len() == 30);
        }
    }

    #[test]
    fn a_reader_that_panics_is_an_error() {
        // The calling thread continues only when another has panicked.
        let (sender, panicked) = std::sync::mpsc::channel();
        let (sender, panicked) = (Lock::new(sender), Lock::new(panicked));
        let caller = thread::current().id();
        let read = read_concurrently(&[0, 1], 2, |_| -> io::Result<()> {
            if thread::current().id() == caller {
                panicked.lock().recv().map_err(io::Error::other)
            } else {
                sender.lock().send(()).map_err(io::Error::other)?;
                panic!("this panic is a test's")
            }
        });
        assert!(read.unwrap_err().to_string().contains("panicked"));
    }
}
