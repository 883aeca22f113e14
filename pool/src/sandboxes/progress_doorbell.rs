//! The eventfd that a guest's progress doorbell signals.
//!
//! While the runtime watches the eventfd, each ring wakes the runtime, whether or not a task waits
//! for it. So the eventfd of a guest that is not to be served for a while is not watched meanwhile:
//! the guest may ring as often as it likes, and only signals the eventfd.

use std::io;
use std::mem;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};

use super::watch::watch;

/// The node's end of a guest's progress doorbell.
#[derive(Debug)]
pub enum ProgressDoorbell {
    /// Rings are received.
    Watched(AsyncFd<OwnedFd>),
    /// Rings are kept for later.
    Unwatched(OwnedFd),
    /// The eventfd cannot be watched any more, because the kernel lacks resources.
    Lost,
}

impl ProgressDoorbell {
    /// Watches `eventfd`.
    ///
    /// # Errors
    /// Returns the error of the system if it cannot be watched.
    pub fn new(eventfd: OwnedFd) -> io::Result<Self> {
        Ok(Self::Watched(watch(eventfd)?))
    }

    /// Waits for a ring and takes the signal, but not before `from`. Cancel-safe.
    pub async fn wait_for_ring(&mut self, from: Option<Instant>) {
        if let Some(from) = from {
            self.unwatch();
            sleep_until(from).await;
        }
        self.watch();
        let Self::Watched(eventfd) = self else {
            return std::future::pending().await;
        };
        // An eventfd of our own cannot fail; if it does, the socket reports the end.
        if take(eventfd).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn unwatch(&mut self) {
        *self = match mem::replace(self, Self::Lost) {
            Self::Watched(eventfd) => Self::Unwatched(eventfd.into_inner()),
            other => other,
        };
    }

    fn watch(&mut self) {
        *self = match mem::replace(self, Self::Lost) {
            Self::Unwatched(eventfd) => watch(eventfd).map_or(Self::Lost, Self::Watched),
            other => other,
        };
    }
}

/// Waits for a signal and takes it. No signal is left then, so the next one is awaited at once,
/// without another read.
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
    async fn rings_while_unwatched_are_received_once_afterwards() {
        let ours = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let theirs = ours.try_clone().unwrap();
        let ring = || rustix::io::write(&theirs, &1_u64.to_ne_bytes()).unwrap();
        let mut progress = ProgressDoorbell::new(ours).unwrap();
        for _ in 0..3 {
            // Far longer than a busy machine delays this test between two steps.
            let from = Instant::now() + Duration::from_millis(500);
            ring();
            // A waiting task may turn to something else, and come back.
            let soon = timeout(Duration::from_millis(1), progress.wait_for_ring(Some(from))).await;
            assert!(soon.is_err() && matches!(progress, ProgressDoorbell::Unwatched(_)));
            ring();
            progress.wait_for_ring(Some(from)).await;
            assert!(Instant::now() >= from);
            let again = timeout(Duration::from_millis(1), progress.wait_for_ring(None)).await;
            assert!(again.is_err(), "both were one");
        }
    }
}
