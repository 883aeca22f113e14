//! A queue of messages to a process. It counts their size, because a process may stop reading.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

/// How long a process may read nothing while there is data for it. A healthy process reads it at
/// once.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The sending end.
#[derive(Debug)]
pub struct Queue<T> {
    sender: mpsc::UnboundedSender<(T, usize)>,
    size: Arc<AtomicUsize>,
}

/// The end from which messages are written to the process.
#[derive(Debug)]
pub struct Outgoing<T> {
    receiver: mpsc::UnboundedReceiver<(T, usize)>,
    size: Arc<AtomicUsize>,
}

/// Creates an empty queue.
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
    /// Adds a message of this size. Returns the size of the whole queue.
    pub fn add(&self, what: T, size: usize) -> usize {
        let before = self.size.fetch_add(size, Ordering::Relaxed);
        // If the receiver is gone, so is the process, and the waiting callers were notified.
        let _ = self.sender.send((what, size));
        before + size
    }

    /// Returns the size of all messages in the queue.
    pub fn size(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }
}

impl<T> Outgoing<T> {
    /// Returns the next message and its size, which counts until [`written`](Self::written).
    /// Returns `None` when all senders are gone.
    pub async fn next(&mut self) -> Option<(T, usize)> {
        self.receiver.recv().await
    }

    /// Returns the next message, if there is one now.
    pub fn next_now(&mut self) -> Option<(T, usize)> {
        self.receiver.try_recv().ok()
    }

    /// Records that so many bytes were written to the process.
    pub fn written(&self, size: usize) {
        self.size.fetch_sub(size, Ordering::Relaxed);
    }
}

/// Performs one write, within [`WRITE_TIMEOUT`].
///
/// # Errors
/// Returns the error of the write, or `TimedOut` if it takes longer than [`WRITE_TIMEOUT`].
pub async fn with_write_timeout<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(WRITE_TIMEOUT, step).await {
        Ok(outcome) => outcome,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
