//! How much of a call's data may be sent: shared by who sends and who hears of more.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::frames::{FRAME_MAX, PIECE_MIN, WINDOW, cost};

/// Credit of one direction of a call; who sends waits for it.
#[derive(Debug)]
pub struct Credit {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bytes: usize,
    /// What there is at most.
    window: usize,
    is_closed: bool,
    /// Who waits.
    waiter: Option<Waker>,
}

/// More credit than a window: who gives that is not sane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun;

impl Default for Credit {
    fn default() -> Self {
        Self::growing_to(WINDOW)
    }
}

impl Credit {
    /// Of a direction that begins with [`WINDOW`], and that who receives may give more, up to this.
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

    /// Waits until something may be sent, and says how much in one piece. `None` when nobody wants
    /// it any more. For one waiter.
    pub async fn wait(&self) -> Option<usize> {
        poll_fn(|context| self.poll(context)).await
    }

    /// As [`wait`](Self::wait), for who has a context.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<Option<usize>> {
        let mut state = self.state();
        if state.is_closed {
            return Poll::Ready(None);
        }
        // Less is no piece: more comes back as what is under way is taken.
        if state.bytes >= PIECE_MIN {
            // Of more, what is left may be too little for the piece that it makes.
            return Poll::Ready(Some(state.bytes.min(FRAME_MAX)));
        }
        match &mut state.waiter {
            Some(waiter) => waiter.clone_from(context.waker()),
            waiter => *waiter = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Wakes who waits. Outside of the lock: it may come at once.
    fn changed(&self) {
        let waiter = self.state().waiter.take();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// Takes as much of `wanted` as a piece may have now, which is sent; zero where none may be.
    pub fn take(&self, wanted: usize) -> usize {
        let mut state = self.state();
        if wanted == 0 || state.bytes < PIECE_MIN {
            return 0;
        }
        let taken = wanted.min(state.bytes);
        state.bytes -= cost(taken);
        taken
    }

    /// Adds what the other side gives back.
    ///
    /// # Errors
    /// When it gives more than it has had.
    pub fn add(&self, bytes: usize) -> Result<(), Overrun> {
        let mut state = self.state();
        let sum = state.bytes.checked_add(bytes);
        let sum = sum.filter(|sum| *sum <= state.window);
        state.bytes = sum.ok_or(Overrun)?;
        drop(state);
        self.changed();
        Ok(())
    }

    /// Nobody wants more: whoever waits is told.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.changed();
    }

    /// Whether nobody wants more.
    pub fn is_closed(&self) -> bool {
        self.state().is_closed
    }
}

/// What a receiver has taken and not yet given back.
#[derive(Debug)]
pub struct Consumed {
    bytes: usize,
    window: usize,
}

impl Default for Consumed {
    fn default() -> Self {
        let (bytes, window) = (0, WINDOW);
        Self { bytes, window }
    }
}

impl Consumed {
    /// Counts a piece that was taken; gives what is to be given back now, which is done seldom.
    pub fn take(&mut self, bytes: usize) -> Option<usize> {
        self.bytes += cost(bytes);
        (self.bytes >= self.window / 4).then(|| std::mem::take(&mut self.bytes))
    }

    /// The window is larger from now on: what it has more is to be given, too.
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
        assert_eq!(credit.add(1), Err(Overrun));
        assert_eq!(credit.take(WINDOW + 1), WINDOW);
        assert_eq!(credit.take(1), 0);
        assert_eq!(credit.add(usize::MAX), Err(Overrun));
        assert_eq!(credit.add(PIECE_MIN + 10), Ok(()));
        assert_eq!(credit.take(WINDOW), PIECE_MIN + 10);
    }

    #[test]
    fn small_pieces_take_a_window_too_and_all_of_it_comes_back() {
        let (credit, mut consumed) = (Credit::default(), Consumed::default());
        let pieces = std::iter::repeat_with(|| credit.take(1)).take_while(|taken| *taken == 1);
        assert_eq!(pieces.count(), WINDOW / PIECE_MIN);
        for _ in 0..WINDOW / PIECE_MIN {
            if let Some(back) = consumed.take(1) {
                credit.add(back).unwrap();
            }
        }
        assert_eq!(credit.take(WINDOW), WINDOW);
        // With less than a piece's least left nothing is sent, and nothing is lost.
        credit.add(PIECE_MIN - 1).unwrap();
        assert_eq!(credit.take(1), 0);
        credit.add(1).unwrap();
        assert_eq!(credit.take(PIECE_MIN), PIECE_MIN);
    }

    #[test]
    fn a_window_grows_by_what_is_given_back_and_no_further() {
        let (credit, mut consumed) = (Credit::growing_to(LARGE_WINDOW), Consumed::default());
        assert_eq!(credit.take(LARGE_WINDOW), WINDOW);
        consumed.grow_to(LARGE_WINDOW);
        consumed.grow_to(WINDOW);
        // Something has to be taken for it to be given.
        let back = consumed.take(WINDOW).unwrap();
        credit.add(back).unwrap();
        assert_eq!(credit.add(1), Err(Overrun));
        assert_eq!(credit.take(usize::MAX), LARGE_WINDOW);
        assert_eq!(consumed.take(LARGE_WINDOW / 4 - 1), None);
        assert_eq!(
            consumed.take(PIECE_MIN).unwrap(),
            LARGE_WINDOW / 4 - 1 + PIECE_MIN
        );
    }
}
