//! What is to be said to a process: counted, for one may have stopped listening.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

/// How long a process may take nothing while there is something for it. One that is in its right
/// mind takes it at once.
pub const STUCK: Duration = Duration::from_secs(10);

/// The end that is said to.
#[derive(Debug)]
pub struct Queue<T> {
    sender: mpsc::UnboundedSender<(T, usize)>,
    size: Arc<AtomicUsize>,
}

/// The end that is written from.
#[derive(Debug)]
pub struct Outgoing<T> {
    receiver: mpsc::UnboundedReceiver<(T, usize)>,
    size: Arc<AtomicUsize>,
}

/// A queue with nothing in it.
pub fn queue<T>() -> (Queue<T>, Outgoing<T>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let size = Arc::new(AtomicUsize::new(0));
    let queue = Queue {
        sender,
        size: size.clone(),
    };
    (queue, Outgoing { receiver, size })
}

impl<T> Queue<T> {
    /// Adds something of that size; how much there is now.
    pub fn add(&self, what: T, size: usize) -> usize {
        let before = self.size.fetch_add(size, Ordering::Relaxed);
        // Where nobody takes it the process is gone, and whoever waits for it has been told.
        let _ = self.sender.send((what, size));
        before + size
    }

    /// How much there is.
    pub fn size(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }
}

impl<T> Outgoing<T> {
    /// The next, and its size, which counts until [`written`](Self::written). `None` when nobody
    /// says anything any more.
    pub async fn next(&mut self) -> Option<(T, usize)> {
        self.receiver.recv().await
    }

    /// The next, if there is one now.
    pub fn next_now(&mut self) -> Option<(T, usize)> {
        self.receiver.try_recv().ok()
    }

    /// That much is with the process.
    pub fn written(&self, size: usize) {
        self.size.fetch_sub(size, Ordering::Relaxed);
    }
}

/// Does a step of writing.
///
/// # Errors
/// The step's, and when it takes as long as only one who has stopped listening does.
pub async fn in_time<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(STUCK, step).await {
        Ok(outcome) => outcome,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
