//! Receives response bodies within limits, and sends request bodies in pieces.

use std::{
    convert::Infallible,
    fs::File,
    io::{Seek as _, Write as _},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use faasw_client::Digest;
use faasw_common::text::Line;
use http_body::{Body, Frame, SizeHint};
use reqwest::Response;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use super::{
    Blob, Registry,
    exchange::{broken, host_of},
};
use crate::{OciError, access::RATE_MIN, reference::spelled};

/// Maximum number of bytes of a registry's error message that are read.
const DETAIL_MAX: usize = 8 << 10;

/// Maximum number of characters of an error message that are reported.
const TOLD_MAX: usize = 300;

/// Number of bytes that are sent at a time.
const PIECE: usize = 64 << 10;

/// A response body while it is received.
struct Coming<'a> {
    registry: &'a Registry,
    response: Response,
    begun: Instant,
    bytes: u64,
}

impl Coming<'_> {
    /// Returns the next piece, or `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, OciError> {
        let url = self.response.url().clone();
        let silence = self.registry.access.longest_silence();
        // Each received byte extends the deadline. A sender of single bytes soon exceeds it.
        let bought = std::time::Duration::from_secs(self.bytes / RATE_MIN);
        if self.begun.elapsed() > silence.saturating_mul(2).saturating_add(bought) {
            return Err(OciError::Slow {
                host: host_of(&url),
                rate: RATE_MIN,
            });
        }
        let piece = timeout(silence, self.response.chunk())
            .await
            .map_err(|_| self.registry.stalled(&url))?
            .map_err(|error| broken(&url, error))?;
        self.bytes += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Ok(piece)
    }
}

/// The common form of error messages of registries.
#[derive(Deserialize)]
struct Errors {
    errors: Vec<RegistryError>,
}

#[derive(Deserialize)]
struct RegistryError {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

impl Registry {
    fn coming(&self, response: Response) -> Coming<'_> {
        Coming {
            registry: self,
            response,
            begun: Instant::now(),
            bytes: 0,
        }
    }

    /// Receives a small body into memory.
    pub(super) async fn collect(
        &self,
        response: Response,
        what: &str,
        limit: u64,
    ) -> Result<Bytes, OciError> {
        let too_large = || OciError::TooLarge {
            what: what.to_owned(),
            limit,
        };
        if response.content_length().is_some_and(|bytes| bytes > limit) {
            return Err(too_large());
        }
        let mut coming = self.coming(response);
        let mut all = BytesMut::new();
        while let Some(piece) = coming.next().await? {
            if coming.bytes > limit {
                return Err(too_large());
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }

    /// Receives a body into an unnamed file, and verifies its size and digest.
    pub(super) async fn keep(
        &self,
        response: Response,
        blob: &Blob,
        what: &str,
    ) -> Result<File, OciError> {
        let differs = |count: u64| {
            let why = format!("{count} bytes come, and {} were announced", blob.bytes);
            OciError::damaged(what, why)
        };
        if let Some(count) = response
            .content_length()
            .filter(|count| *count != blob.bytes)
        {
            return Err(differs(count));
        }
        let mut file = tempfile::tempfile()?;
        let mut digest = Sha256::new();
        let mut coming = self.coming(response);
        while let Some(piece) = coming.next().await? {
            if coming.bytes > blob.bytes {
                return Err(OciError::damaged(
                    what,
                    format!(
                        "more than the {} bytes come that were announced",
                        blob.bytes
                    ),
                ));
            }
            digest.update(&piece);
            file.write_all(&piece)?;
        }
        if coming.bytes != blob.bytes {
            return Err(differs(coming.bytes));
        }
        let digest = Digest::from(<[u8; 32]>::from(digest.finalize()));
        if digest != blob.digest {
            let why = format!(
                "its digest is {}, and was to be {}",
                spelled(digest),
                spelled(blob.digest)
            );
            return Err(OciError::damaged(what, why));
        }
        file.rewind()?;
        Ok(file)
    }

    /// Returns the message in an error response. If it cannot be received, the result is empty and
    /// the original error remains.
    pub(super) async fn detail(&self, response: Response) -> String {
        let mut coming = self.coming(response);
        let mut all = Vec::new();
        while let Ok(Some(piece)) = coming.next().await {
            all.extend_from_slice(&piece);
            if all.len() > DETAIL_MAX {
                break;
            }
        }
        let Ok(Errors { errors }) = serde_json::from_slice(&all) else {
            return String::new();
        };
        let told = errors.into_iter().next().map(|error| {
            if error.message.is_empty() {
                error.code
            } else {
                error.message
            }
        });
        let told: String = told.unwrap_or_default().chars().take(TOLD_MAX).collect();
        Line(told).to_string()
    }
}

/// A request body that reports when a piece of it is taken.
pub(super) struct Pieces {
    rest: Bytes,
    taken: watch::Sender<()>,
}

impl Pieces {
    /// Creates a body from these bytes, and a receiver that is notified of each piece.
    pub(super) fn of(bytes: Bytes) -> (Self, watch::Receiver<()>) {
        let (taken, changes) = watch::channel(());
        (Self { rest: bytes, taken }, changes)
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(length);
        // The receiver may be gone.
        let _ = self.taken.send(());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
