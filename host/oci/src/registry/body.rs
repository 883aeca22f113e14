//! Receives response bodies within limits, and sends request bodies in chunks.

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
    failure::{broken, host_of},
};
use crate::{OciError, access::RATE_MIN, reference::digest_text};

/// Maximum number of bytes of a registry's error message that are read.
const DETAIL_MAX: usize = 8 << 10;

/// Maximum number of characters of an error message that are reported.
const MESSAGE_MAX: usize = 300;

/// Number of bytes that are sent at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// A response body while it is received.
struct BodyReader<'a> {
    registry: &'a Registry,
    response: Response,
    started: Instant,
    bytes: u64,
}

impl BodyReader<'_> {
    /// Returns the next chunk, or `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, OciError> {
        let url = self.response.url().clone();
        let silence = self.registry.access.longest_silence();
        // Each received byte extends the deadline. A sender of single bytes soon exceeds it.
        let bought = std::time::Duration::from_secs(self.bytes / RATE_MIN);
        if self.started.elapsed() > silence.saturating_mul(2).saturating_add(bought) {
            return Err(OciError::Slow {
                host: host_of(&url),
                rate: RATE_MIN,
            });
        }
        let chunk = timeout(silence, self.response.chunk())
            .await
            .map_err(|_| self.registry.stalled(&url))?
            .map_err(|error| broken(&url, error))?;
        self.bytes += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        Ok(chunk)
    }
}

/// The common form of error messages of registries.
#[derive(Deserialize)]
struct ErrorBody {
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
    fn body_reader(&self, response: Response) -> BodyReader<'_> {
        BodyReader {
            registry: self,
            response,
            started: Instant::now(),
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
        let mut body = self.body_reader(response);
        let mut all = BytesMut::new();
        while let Some(chunk) = body.next().await? {
            if body.bytes > limit {
                return Err(too_large());
            }
            all.extend_from_slice(&chunk);
        }
        Ok(all.freeze())
    }

    /// Receives a body into an unnamed file, and verifies its size and digest.
    pub(super) async fn receive_file(
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
        let mut body = self.body_reader(response);
        while let Some(chunk) = body.next().await? {
            if body.bytes > blob.bytes {
                return Err(OciError::damaged(
                    what,
                    format!(
                        "more than the {} bytes come that were announced",
                        blob.bytes
                    ),
                ));
            }
            digest.update(&chunk);
            file.write_all(&chunk)?;
        }
        if body.bytes != blob.bytes {
            return Err(differs(body.bytes));
        }
        let digest = Digest::from(<[u8; 32]>::from(digest.finalize()));
        if digest != blob.digest {
            let why = format!(
                "its digest is {}, and was to be {}",
                digest_text(digest),
                digest_text(blob.digest)
            );
            return Err(OciError::damaged(what, why));
        }
        file.rewind()?;
        Ok(file)
    }

    /// Returns the message in an error response. If it cannot be received, the result is empty and
    /// the original error remains.
    pub(super) async fn detail(&self, response: Response) -> String {
        let mut body = self.body_reader(response);
        let mut all = Vec::new();
        while let Ok(Some(chunk)) = body.next().await {
            all.extend_from_slice(&chunk);
            if all.len() > DETAIL_MAX {
                break;
            }
        }
        let Ok(ErrorBody { errors }) = serde_json::from_slice(&all) else {
            return String::new();
        };
        let message = errors.into_iter().next().map(|error| {
            if error.message.is_empty() {
                error.code
            } else {
                error.message
            }
        });
        let message: String = message
            .unwrap_or_default()
            .chars()
            .take(MESSAGE_MAX)
            .collect();
        Line(message).to_string()
    }
}

/// A request body that reports when a chunk of it is taken.
pub(super) struct BodyChunks {
    rest: Bytes,
    taken: watch::Sender<()>,
}

impl BodyChunks {
    /// Creates a body from these bytes, and a receiver that is notified of each chunk.
    pub(super) fn of(bytes: Bytes) -> (Self, watch::Receiver<()>) {
        let (taken, changes) = watch::channel(());
        (Self { rest: bytes, taken }, changes)
    }
}

impl Body for BodyChunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.rest.len().min(CHUNK_BYTES);
        let chunk = self.rest.split_to(length);
        // The receiver may be gone.
        let _ = self.taken.send(());
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
