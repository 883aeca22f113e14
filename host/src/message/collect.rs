//! Collecting a request's body up to a limit.

use std::{pin::pin, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{Request, Version, header};
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout, timeout_at};

use super::{CallerContext, RequestRejection};

/// Bytes of a body that is too large, and time, for which it is read and discarded. A client that
/// sends before it reads then still receives the response instead of a connection reset.
const DRAIN_BYTES: usize = 16 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// Reads a whole body of at most `limit` bytes within `timeout`.
///
/// `may_refuse_unread` says that the client waits for `100-continue` before it sends (`Expect:
/// 100-continue`): a body that is announced as too large is then not read at all.
pub(crate) async fn collect<B>(
    body: B,
    limit: usize,
    timeout: Duration,
    may_refuse_unread: bool,
) -> Result<Bytes, RequestRejection>
where
    B: Body,
    B::Error: std::fmt::Display,
{
    let announced = body.size_hint().lower();
    if may_refuse_unread && announced > limit as u64 {
        return Err(RequestRejection::BodyTooLarge(limit));
    }
    let deadline = Instant::now() + timeout;
    let mut body = pin!(body);
    let mut whole = BytesMut::new();
    loop {
        let frame = match timeout_at(deadline, body.frame()).await {
            Err(_) => return Err(RequestRejection::BodyTimeout(timeout)),
            Ok(None) => return Ok(whole.freeze()),
            Ok(Some(Err(error))) => {
                return Err(RequestRejection::BodyUnreadable(error.to_string()));
            }
            Ok(Some(Ok(frame))) => frame,
        };
        // A frame without data holds trailers, which are ignored.
        let Ok(mut data) = frame.into_data() else {
            continue;
        };
        let size = bytes::Buf::remaining(&data);
        if size > limit - whole.len() {
            discard(body).await;
            return Err(RequestRejection::BodyTooLarge(limit));
        }
        let data = bytes::Buf::copy_to_bytes(&mut data, size);
        if whole.is_empty() && body.is_end_stream() {
            return Ok(data);
        }
        whole.extend_from_slice(&data);
    }
}

/// Discards a body that its client sends before it reads, so that the client receives the response.
/// A client that waits for `100-continue` has sent nothing. A function that made the request
/// receives the response in any case.
pub(crate) async fn refuse<B: Body>(request: Request<B>) {
    if !expects_continue(&request) && request.extensions().get::<CallerContext>().is_none() {
        discard(request.into_body()).await;
    }
}

/// Whether the client waits for `100-continue` before it sends the body. HTTP/1.0 does not have
/// this (RFC 9110, section 10.1.1).
pub(crate) fn expects_continue<B>(request: &Request<B>) -> bool {
    request.version() >= Version::HTTP_11 && request.headers().contains_key(header::EXPECT)
}

/// Reads and discards the rest of a body, within bounds.
pub(crate) async fn discard<B: Body>(body: B) {
    let mut body = pin!(body);
    let mut left = DRAIN_BYTES;
    let all = async {
        while let Some(Ok(frame)) = body.frame().await {
            let size = frame.data_ref().map_or(0, bytes::Buf::remaining);
            let Some(rest) = left.checked_sub(size) else {
                return;
            };
            left = rest;
        }
    };
    // The response is the same whether the body ended or not.
    let _ = timeout(DRAIN_TIME, all).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn in_parts(parts: &[&'static [u8]]) -> impl Body<Data = Bytes, Error = std::io::Error> {
        struct Parts(Vec<Bytes>);
        impl Body for Parts {
            type Data = Bytes;
            type Error = std::io::Error;
            fn poll_frame(
                mut self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
                std::task::Poll::Ready(self.0.pop().map(|part| Ok(http_body::Frame::data(part))))
            }
        }
        Parts(
            parts
                .iter()
                .rev()
                .map(|part| Bytes::from_static(part))
                .collect(),
        )
    }

    #[tokio::test]
    async fn a_body_up_to_the_limit_arrives_whole() {
        for (body, whole) in [
            (&[] as &[&'static [u8]], &b""[..]),
            (&[b"abc", b"de"], b"abcde"),
        ] {
            let collected = collect(in_parts(body), 5, TIMEOUT, false).await.unwrap();
            assert_eq!(collected, whole);
        }
        let full = collect(Full::new(Bytes::from_static(b"abcde")), 5, TIMEOUT, false);
        assert_eq!(full.await.unwrap(), "abcde");
    }

    #[tokio::test]
    async fn a_larger_body_is_rejected_with_or_without_a_length() {
        let parts = collect(in_parts(&[b"abc", b"def"]), 5, TIMEOUT, false).await;
        assert!(matches!(parts, Err(RequestRejection::BodyTooLarge(5))));
        for asked in [false, true] {
            let full = Full::new(Bytes::from_static(b"abcdef"));
            let refused = collect(full, 5, TIMEOUT, asked).await;
            assert!(matches!(refused, Err(RequestRejection::BodyTooLarge(5))));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_body_times_out() {
        struct Never;
        impl Body for Never {
            type Data = Bytes;
            type Error = std::convert::Infallible;
            fn poll_frame(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
                std::task::Poll::Pending
            }
        }
        let refused = collect(Never, 5, TIMEOUT, false).await;
        assert!(matches!(
            refused,
            Err(RequestRejection::BodyTimeout(TIMEOUT))
        ));
    }
}
