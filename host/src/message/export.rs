//! An export on its way out: a piece is read and sealed when whoever takes it has taken the one
//! before, by a thread that waits for nobody.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use faasw_pool::{ParcelError, Sealing};
use faasw_text::Line;
use tokio::{sync::OwnedSemaphorePermit, task::JoinHandle};

/// A piece, or nothing behind the last one.
type Sealed = Result<Option<Vec<u8>>, ParcelError>;

/// What is left of an export.
#[derive(Debug)]
pub(super) struct Exporting {
    state: State,
    left: u64,
    _turn: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
enum State {
    /// Until the next piece is wanted.
    Resting(Box<Sealing>),
    /// That is made.
    Sealing(JoinHandle<(Box<Sealing>, Sealed)>),
    Over,
}

impl Exporting {
    pub(super) fn new(export: Sealing, turn: Option<OwnedSemaphorePermit>) -> Self {
        Self {
            left: export.bytes(),
            state: State::Resting(Box::new(export)),
            _turn: turn,
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
                    let sealing = tokio::task::spawn_blocking(move || {
                        let sealed = export.next_piece();
                        (export, sealed)
                    });
                    self.state = State::Sealing(sealing);
                }
                State::Sealing(mut sealing) => {
                    let Poll::Ready(sealed) = Pin::new(&mut sealing).poll(context) else {
                        self.state = State::Sealing(sealing);
                        return Poll::Pending;
                    };
                    return Poll::Ready(self.sealed(sealed.map_err(io::Error::other)));
                }
            }
        }
    }

    fn sealed(
        &mut self,
        sealed: io::Result<(Box<Sealing>, Sealed)>,
    ) -> Option<Result<Bytes, ParcelError>> {
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
