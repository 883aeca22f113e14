//! A request's body on its way to the function, up to a limit.

use std::{
    fmt::Display,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use faasw_pool::{ClientError, RequestBody};
use http_body::{Body, Frame};

/// How much of a body that is too large is read and thrown away before it is
/// refused, so that a client that sends before it listens still gets its answer
/// instead of a reset connection. The time for it is the exchange's.
const DRAIN_BYTES: u64 = 16 << 20;

/// The body as the pool takes it; it fails beyond `limit` bytes.
pub(crate) fn limited<B>(body: B, limit: u64) -> RequestBody
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Display,
{
    RequestBody::new(Limited {
        body: Box::pin(body),
        limit,
        left: limit,
        surplus: None,
    })
}

struct Limited<B> {
    body: Pin<Box<B>>,
    limit: u64,
    left: u64,
    /// Once it was too large: how much more is thrown away.
    surplus: Option<u64>,
}

impl<B> Body for Limited<B>
where
    B: Body,
    B::Error: Display,
{
    type Data = Bytes;
    type Error = ClientError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientError>>> {
        loop {
            let frame = ready!(self.body.as_mut().poll_frame(context));
            let too_large = ClientError::TooLarge(self.limit);
            let frame = match frame {
                Some(Ok(frame)) => frame,
                None | Some(Err(_)) if self.surplus.is_some() => {
                    return Poll::Ready(Some(Err(too_large)));
                }
                None => return Poll::Ready(None),
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(ClientError::Broken(error.to_string()))));
                }
            };
            let mut data = match frame.into_data() {
                Ok(data) => data,
                Err(_) if self.surplus.is_some() => continue,
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
            };
            let size = data.remaining() as u64;
            if let Some(surplus) = self.surplus {
                match surplus.checked_sub(size) {
                    Some(rest) => self.surplus = Some(rest),
                    None => return Poll::Ready(Some(Err(too_large))),
                }
            } else if let Some(left) = self.left.checked_sub(size) {
                self.left = left;
                let data = data.copy_to_bytes(data.remaining());
                return Poll::Ready(Some(Ok(Frame::data(data))));
            } else {
                self.surplus = Some(DRAIN_BYTES);
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.surplus.is_none() && self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt as _, Full};
    use std::collections::VecDeque;

    /// Frames that are there already.
    struct Frames(VecDeque<Result<Frame<Bytes>, &'static str>>);

    impl Body for Frames {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
            Poll::Ready(self.0.pop_front())
        }
    }

    #[tokio::test]
    async fn what_fits_passes_and_what_does_not_is_refused_after_it_was_read() {
        let fits = limited(Full::new(Bytes::from_static(b"12345")), 5);
        assert_eq!(fits.collect().await.unwrap().to_bytes(), "12345");
        let frames = (0..4).map(|_| Ok(Frame::data(Bytes::from("12"))));
        let mut large = limited(Frames(frames.collect()), 5);
        for _ in 0..2 {
            assert!(large.frame().await.unwrap().unwrap().is_data());
        }
        let refused = large.frame().await.unwrap();
        assert!(
            matches!(refused, Err(ClientError::TooLarge(5))),
            "{refused:?}"
        );
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_says_so_and_trailers_pass() {
        let broken = [Ok(Frame::data(Bytes::from("x"))), Err("gone")];
        let broken = limited(Frames(broken.into()), 5);
        let error = broken.collect().await.unwrap_err();
        assert!(error.to_string().contains("gone"), "{error}");
        let mut fields = http::HeaderMap::new();
        fields.insert("x-t", http::HeaderValue::from_static("1"));
        let whole = limited(Frames([Ok(Frame::trailers(fields))].into()), 0);
        let whole = whole.collect().await.unwrap();
        assert_eq!(whole.trailers().unwrap()["x-t"], "1");
    }
}
