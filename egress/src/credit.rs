//! Credit: how much of a call's data may be sent. The sender and the receiver of credit frames
//! share it.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::ProtocolViolation;
use crate::frames::{FRAME_MAX, PIECE_MIN, WINDOW, cost};

/// Credit of one direction of a call, on which its sender waits.
#[derive(Debug)]
pub struct Credit {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bytes: usize,
    /// The most credit that there may be.
    window: usize,
    is_closed: bool,
    /// The task that waits for credit.
    waiter: Option<Waker>,
}

impl Default for Credit {
    fn default() -> Self {
        Self::growing_to(WINDOW)
    }
}

impl Credit {
    /// Creates credit of a direction that begins with [`WINDOW`], and that the receiver may raise
    /// up to `window`.
    pub fn growing_to(window: usize) -> Self {
        Self {
            state: Mutex::new(State {
                bytes: WINDOW,
                window,
                is_closed: false,
                waiter: None,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until data may be sent, and returns how much in one piece. Returns `None` when no more
    /// data is wanted. Only one task may wait.
    pub async fn wait(&self) -> Option<usize> {
        poll_fn(|context| self.poll(context)).await
    }

    /// Polls for what [`wait`](Self::wait) returns.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<Option<usize>> {
        let mut state = self.state();
        if state.is_closed {
            return Poll::Ready(None);
        }
        // Less credit does not suffice for a piece. More credit comes back as the receiver takes
        // the data under way.
        if state.bytes >= PIECE_MIN {
            // Limited to one frame: after a longer piece, the rest may be too little for another.
            return Poll::Ready(Some(state.bytes.min(FRAME_MAX)));
        }
        match &mut state.waiter {
            Some(waiter) => waiter.clone_from(context.waker()),
            waiter => *waiter = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Wakes the waiting task, outside of the lock because it may run at once.
    fn changed(&self) {
        let waiter = self.state().waiter.take();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// Takes as much of `wanted` as one piece may have now; the caller sends it. Returns 0 if no
    /// piece may be sent, or if the direction is closed.
    pub fn take(&self, wanted: usize) -> usize {
        let mut state = self.state();
        if wanted == 0 || state.is_closed || state.bytes < PIECE_MIN {
            return 0;
        }
        let taken = wanted.min(state.bytes);
        state.bytes -= cost(taken);
        taken
    }

    /// Adds credit that the other side gives back.
    ///
    /// # Errors
    /// Returns [`ProtocolViolation`] if that would be more than the window.
    pub fn add(&self, bytes: usize) -> Result<(), ProtocolViolation> {
        let mut state = self.state();
        let sum = state.bytes.checked_add(bytes);
        let sum = sum.filter(|sum| *sum <= state.window);
        state.bytes = sum.ok_or(ProtocolViolation)?;
        drop(state);
        self.changed();
        Ok(())
    }

    /// Records that no more data is wanted, and wakes the waiting task.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.changed();
    }

    /// Returns whether no more data is wanted.
    pub fn is_closed(&self) -> bool {
        self.state().is_closed
    }
}

/// Data that a receiver has taken and not yet given back as credit.
#[derive(Debug)]
pub struct ConsumedBytes {
    bytes: usize,
    window: usize,
}

impl Default for ConsumedBytes {
    fn default() -> Self {
        let (bytes, window) = (0, WINDOW);
        Self { bytes, window }
    }
}

impl ConsumedBytes {
    /// Counts a piece that was taken. Returns the credit that is due now; credit is returned in
    /// large amounts.
    pub fn take(&mut self, bytes: usize) -> Option<usize> {
        self.bytes += cost(bytes);
        (self.bytes >= self.window / 4).then(|| std::mem::take(&mut self.bytes))
    }

    /// Enlarges the window; the difference becomes credit, too.
    pub fn grow_to(&mut self, window: usize) {
        self.bytes += window.saturating_sub(self.window);
        self.window = window.max(self.window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::LARGE_WINDOW;

    #[test]
    fn more_than_a_window_is_never_credited() {
        let credit = Credit::default();
        assert_eq!(credit.add(1), Err(ProtocolViolation));
        assert_eq!(credit.take(WINDOW + 1), WINDOW);
        assert_eq!(credit.take(1), 0);
        assert_eq!(credit.add(usize::MAX), Err(ProtocolViolation));
        assert_eq!(credit.add(PIECE_MIN + 10), Ok(()));
        assert_eq!(credit.take(WINDOW), PIECE_MIN + 10);
    }

    #[test]
    fn small_pieces_count_with_a_minimum_and_are_fully_credited() {
        let (credit, mut consumed) = (Credit::default(), ConsumedBytes::default());
        let pieces = std::iter::repeat_with(|| credit.take(1)).take_while(|taken| *taken == 1);
        assert_eq!(pieces.count(), WINDOW / PIECE_MIN);
        for _ in 0..WINDOW / PIECE_MIN {
            if let Some(back) = consumed.take(1) {
                credit.add(back).unwrap();
            }
        }
        assert_eq!(credit.take(WINDOW), WINDOW);
        // If less than the least piece is left, nothing is sent, and nothing is lost.
        credit.add(PIECE_MIN - 1).unwrap();
        assert_eq!(credit.take(1), 0);
        credit.add(1).unwrap();
        assert_eq!(credit.take(PIECE_MIN), PIECE_MIN);
    }

    #[test]
    fn a_window_grows_only_as_data_is_credited() {
        let (credit, mut consumed) = (Credit::growing_to(LARGE_WINDOW), ConsumedBytes::default());
        assert_eq!(credit.take(LARGE_WINDOW), WINDOW);
        consumed.grow_to(LARGE_WINDOW);
        consumed.grow_to(WINDOW);
        // Credit is only given after something was taken.
        let back = consumed.take(WINDOW).unwrap();
        credit.add(back).unwrap();
        assert_eq!(credit.add(1), Err(ProtocolViolation));
        assert_eq!(credit.take(usize::MAX), LARGE_WINDOW);
        assert_eq!(consumed.take(LARGE_WINDOW / 4 - 1), None);
        assert_eq!(
            consumed.take(PIECE_MIN).unwrap(),
            LARGE_WINDOW / 4 - 1 + PIECE_MIN
        );
    }
}
