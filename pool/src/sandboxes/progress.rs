//! The eventfd that a guest's progress doorbell signals.
//!
//! While the runtime watches it, each ring wakes the runtime, whether anybody waits
//! for it or not. So the ring of a guest that is not to be heard for a while is not
//! watched meanwhile: it may ring as often as it likes, and signals one eventfd.

use std::io;
use std::mem;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};

use super::watch::watch;

/// The node's end of a guest's progress doorbell.
#[derive(Debug)]
pub enum Progress {
    /// Rings are heard.
    Watched(AsyncFd<OwnedFd>),
    /// They are kept for later.
    Resting(OwnedFd),
    /// It cannot be watched any more: the system has no room for that.
    Lost,
}

impl Progress {
    /// One that signals `eventfd`.
    ///
    /// # Errors
    /// The system's.
    pub fn new(eventfd: OwnedFd) -> io::Result<Self> {
        Ok(Self::Watched(watch(eventfd)?))
    }

    /// Waits until it has rung, and takes the signal; not before `from`. May be dropped
    /// at any point without losing anything.
    pub async fn rung(&mut self, from: Option<Instant>) {
        if let Some(from) = from {
            self.rest();
            sleep_until(from).await;
        }
        self.listen();
        let Self::Watched(eventfd) = self else {
            return std::future::pending().await;
        };
        // An eventfd of our own cannot fail; if it does, the socket tells the end.
        if take(eventfd).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn rest(&mut self) {
        *self = match mem::replace(self, Self::Lost) {
            Self::Watched(eventfd) => Self::Resting(eventfd.into_inner()),
            other => other,
        };
    }

    fn listen(&mut self) {
        *self = match mem::replace(self, Self::Lost) {
            Self::Resting(eventfd) => watch(eventfd).map_or(Self::Lost, Self::Watched),
            other => other,
        };
    }
}

/// Waits for a signal and takes it. Nothing is left then, so the next one to come is waited
/// for at once, without looking.
async fn take(eventfd: &AsyncFd<OwnedFd>) -> io::Result<()> {
    loop {
        let mut ready = eventfd.readable().await?;
        let taken = ready.try_io(|eventfd| {
            let mut count = [0; size_of::<u64>()];
            Ok(rustix::io::read(eventfd, &mut count)?)
        });
        if let Ok(taken) = taken {
            ready.clear_ready();
            return taken.map(|_| ());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn what_rings_while_it_rests_is_heard_once_after() {
        let ours = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let theirs = ours.try_clone().unwrap();
        let ring = || rustix::io::write(&theirs, &1_u64.to_ne_bytes()).unwrap();
        let mut progress = Progress::new(ours).unwrap();
        for _ in 0..3 {
            // Far longer than a busy machine delays this test between two steps.
            let from = Instant::now() + Duration::from_millis(500);
            ring();
            // Whoever waits may turn to something else, and come back.
            let soon = timeout(Duration::from_millis(1), progress.rung(Some(from))).await;
            assert!(soon.is_err() && matches!(progress, Progress::Resting(_)));
            ring();
            progress.rung(Some(from)).await;
            assert!(Instant::now() >= from);
            let again = timeout(Duration::from_millis(1), progress.rung(None)).await;
            assert!(again.is_err(), "both were one");
        }
    }
}
