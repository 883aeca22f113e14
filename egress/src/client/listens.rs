//! Whether a process still listens: it is asked when somebody waits for it and it says nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

/// How long a process may be silent for whom somebody waits, before it is asked whether it is
/// there.
pub const SILENCE: Duration = Duration::from_secs(2);

/// How long it may take to say so: far longer than a turn of its one thread takes, also where
/// others want the processor.
pub const ANSWER: Duration = Duration::from_secs(5);

/// The last of that, waited for by itself: where it was this process that stood still, its answer
/// is there by then.
const LAST: Duration = Duration::from_millis(500);

/// What a process has said, and whether anybody waits for it to say more.
#[derive(Debug, Default)]
pub struct Listens {
    heard: AtomicU64,
    wanted: Notify,
}

impl Listens {
    /// It has said something.
    pub fn heard(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    /// Somebody waits for it from now on.
    pub fn wanted(&self) {
        self.wanted.notify_one();
    }

    fn count(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// Returns once it has not answered in time. `is_wanted` says whether anybody waits for it, and
    /// `ask` asks it. While nobody waits this takes no turn.
    pub async fn lost(&self, is_wanted: impl Fn() -> bool, ask: impl Fn()) {
        loop {
            self.wanted.notified().await;
            while is_wanted() {
                let before = self.count();
                sleep(SILENCE).await;
                if self.count() != before || !is_wanted() {
                    continue;
                }
                ask();
                sleep(ANSWER - LAST).await;
                sleep(LAST).await;
                if self.count() == before {
                    return;
                }
            }
        }
    }
}

/// [`Listens::lost`] for the process that `asked` speaks to, which may be let go meanwhile: then
/// nobody waits for it.
pub async fn lost<T>(
    listens: Arc<Listens>,
    asked: Weak<T>,
    is_wanted: impl Fn(&T) -> bool,
    ask: impl Fn(&T),
) {
    let is_wanted = || asked.upgrade().is_some_and(|asked| is_wanted(&asked));
    let ask = || {
        if let Some(asked) = asked.upgrade() {
            ask(&asked);
        }
    };
    listens.lost(is_wanted, ask).await;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_is_silent_while_somebody_waits_is_asked_and_lost_without_an_answer() {
        let (listens, asked) = (Listens::default(), Cell::new(0));
        listens.wanted();
        let ask = || {
            asked.set(asked.get() + 1);
            if asked.get() < 3 {
                listens.heard();
            }
        };
        let begun = tokio::time::Instant::now();
        listens.lost(|| true, ask).await;
        assert_eq!((asked.get(), begun.elapsed()), (3, 3 * (SILENCE + ANSWER)));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_asked_for_whom_nobody_waits_or_who_says_something() {
        let (listens, is_wanted) = (Listens::default(), Cell::new(true));
        listens.wanted();
        let saying = async {
            for _ in 0..30 {
                sleep(SILENCE / 2).await;
                listens.heard();
            }
            is_wanted.set(false);
            sleep(10 * ANSWER).await;
        };
        tokio::select! {
            () = listens.lost(|| is_wanted.get(), || panic!("asked")) => panic!("lost"),
            () = saying => {}
        }
    }
}
