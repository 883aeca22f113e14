//! An export that is being sent. A blocking thread reads and seals a piece once the previous piece
//! was taken. Permits are taken for single pieces, so that a client that does not read holds none.

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

/// A piece, or `None` after the last one.
type SealedPiece = Result<Option<Vec<u8>>, ParcelError>;

/// The rest of an export.
#[derive(Debug)]
pub(super) struct ExportStream {
    state: ExportState,
    left: u64,
    turns: Arc<Semaphore>,
}

#[derive(Debug)]
enum ExportState {
    /// Waits until the next piece is polled for.
    Resting(OpenExport),
    /// A piece has its permit, or waits for it.
    Sealing(JoinHandle<io::Result<(OpenExport, SealedPiece)>>),
    Over,
}

/// An export with open files. A blocking thread closes them, because closing may wait for the disk:
/// a file that was unlinked in the meantime is deleted then.
#[derive(Debug)]
struct OpenExport(Option<Box<Sealing>>);

impl OpenExport {
    fn next_piece(&mut self) -> SealedPiece {
        self.0
            .as_mut()
            .map_or(Ok(None), |export| export.next_piece())
    }
}

impl Drop for OpenExport {
    fn drop(&mut self) {
        if let Some(export) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn_blocking(move || drop(export));
        }
    }
}

impl ExportStream {
    pub(super) fn new(export: Sealing, turns: Arc<Semaphore>) -> Self {
        Self {
            left: export.bytes(),
            state: ExportState::Resting(OpenExport(Some(Box::new(export)))),
            turns,
        }
    }

    /// Returns the number of bytes that are still to be taken.
    pub(super) fn bytes_left(&self) -> u64 {
        self.left
    }

    /// Returns the next piece.
    pub(super) fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, ParcelError>>> {
        loop {
            match std::mem::replace(&mut self.state, ExportState::Over) {
                ExportState::Over => return Poll::Ready(None),
                ExportState::Resting(mut export) => {
                    // A task waits for the permit. A permit that was passed to a body that is not
                    // polled would be lost to all others.
                    let turns = self.turns.clone();
                    self.state = ExportState::Sealing(tokio::spawn(async move {
                        let turn = turns.acquire_owned().await;
                        let sealing = tokio::task::spawn_blocking(move || {
                            let sealed = export.next_piece();
                            drop(turn);
                            (export, sealed)
                        });
                        sealing.await.map_err(io::Error::other)
                    }));
                }
                ExportState::Sealing(mut sealing) => {
                    let Poll::Ready(sealed) = Pin::new(&mut sealing).poll(context) else {
                        self.state = ExportState::Sealing(sealing);
                        return Poll::Pending;
                    };
                    let sealed = sealed.map_err(io::Error::other).flatten();
                    return Poll::Ready(self.sealed(sealed));
                }
            }
        }
    }

    fn sealed(
        &mut self,
        sealed: io::Result<(OpenExport, SealedPiece)>,
    ) -> Option<Result<Bytes, ParcelError>> {
        let sealed = sealed.map_err(ParcelError::from);
        match sealed.and_then(|(export, piece)| Ok((export, piece?))) {
            Ok((_, None)) => None,
            Ok((export, Some(piece))) => {
                self.state = ExportState::Resting(export);
                self.left = self.left.saturating_sub(piece.len() as u64);
                Some(Ok(piece.into()))
            }
            Err(error) => {
                tracing::warn!(error = %Line(&error), "an export was cut off");
                Some(Err(error))
            }
        }
    }
}

impl Drop for ExportStream {
    fn drop(&mut self) {
        // A piece that waits for its permit stops waiting.
        if let ExportState::Sealing(sealing) = &self.state {
            sealing.abort();
        }
    }
}
