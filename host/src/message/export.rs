//! An export on its way out: a piece is read and sealed when whoever takes it has taken the one
//! before, by a thread that waits for nobody. Turns are taken for pieces, so that nobody keeps one
//! who does not read.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use faasw_common::text::Line;
use faasw_pool::{ParcelError, Sealing};
use tokio::{runtime::Handle, sync::Semaphore, task::JoinHandle};

/// A piece, or nothing behind the last one.
type Sealed = Result<Option<Vec<u8>>, ParcelError>;

/// What is left of an export.
#[derive(Debug)]
pub(super) struct Exporting {
    state: State,
    left: u64,
    turns: Arc<Semaphore>,
}

#[derive(Debug)]
enum State {
    /// Until the next piece is wanted.
    Resting(Open),
    /// That has its turn, or waits for it.
    Sealing(JoinHandle<io::Result<(Open, Sealed)>>),
    Over,
}

/// An export whose files are open. They are closed by a thread that may wait for the disk: one that
/// was removed meanwhile goes then.
#[derive(Debug)]
struct Open(Option<Box<Sealing>>);

impl Open {
    fn next_piece(&mut self) -> Sealed {
        self.0
            .as_mut()
            .map_or(Ok(None), |export| export.next_piece())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(export) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn_blocking(move || drop(export));
        }
    }
}

impl Exporting {
    pub(super) fn new(export: Sealing, turns: Arc<Semaphore>) -> Self {
        Self {
            left: export.bytes(),
            state: State::Resting(Open(Some(Box::new(export)))),
            turns,
        }
    }

    /// Bytes that are still to be taken.
    pub(super) fn bytes_left(&self) -> u64 {
        self.left
    }

    /// The next piece.
    pub(super) fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, ParcelError>>> {
        loop {
            match std::mem::replace(&mut self.state, State::Over) {
                State::Over => return Poll::Ready(None),
                State::Resting(mut export) => {
                    // A task waits for the turn: one that was given to a body that nobody reads
                    // would be lost to all others.
                    let turns = self.turns.clone();
                    self.state = State::Sealing(tokio::spawn(async move {
                        let turn = turns.acquire_owned().await;
                        let sealing = tokio::task::spawn_blocking(move || {
                            let sealed = export.next_piece();
                            drop(turn);
                            (export, sealed)
                        });
                        sealing.await.map_err(io::Error::other)
                    }));
                }
                State::Sealing(mut sealing) => {
                    let Poll::Ready(sealed) = Pin::new(&mut sealing).poll(context) else {
                        self.state = State::Sealing(sealing);
                        return Poll::Pending;
                    };
                    let sealed = sealed.map_err(io::Error::other).flatten();
                    return Poll::Ready(self.sealed(sealed));
                }
            }
        }
    }

    fn sealed(&mut self, sealed: io::Result<(Open, Sealed)>) -> Option<Result<Bytes, ParcelError>> {
        let sealed = sealed.map_err(ParcelError::from);
        match sealed.and_then(|(export, piece)| Ok((export, piece?))) {
            Ok((_, None)) => None,
            Ok((export, Some(piece))) => {
                self.state = State::Resting(export);
                self.left = self.left.saturating_sub(piece.len() as u64);
                Some(Ok(piece.into()))
            }
            Err(error) => {
                tracing::warn!(error = %Line(&error), "an export broke off");
                Some(Err(error))
            }
        }
    }
}

impl Drop for Exporting {
    fn drop(&mut self) {
        // What waits for its turn is to wait no more.
        if let State::Sealing(sealing) = &self.state {
            sealing.abort();
        }
    }
}
