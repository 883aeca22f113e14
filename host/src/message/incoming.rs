//! A request's body on its way to the function, with a limit of its size and a minimum rate.

use std::{
    fmt::Display,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use faasw_pool::{ClientError, RequestBody};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Empty};
use tokio::time::{Instant, Sleep, sleep_until};

use super::correlation;

/// Bytes of a body that is too large which are read and discarded before it is rejected. A client
/// that sends before it reads then still receives the response instead of a connection reset. The
/// invocation's timeouts limit how long this takes.
const DRAIN_BYTES: u64 = 16 << 20;

/// The limits of a body.
#[derive(Clone, Debug)]
pub(crate) struct BodyLimits {
    /// Maximum bytes of the body.
    pub(crate) bytes: u64,
    /// Minimum bytes per second on average; 0 is no limit.
    pub(crate) rate: u64,
    /// How far the body may be behind.
    pub(crate) grace: Duration,
    /// Whether the response has begun. From then on, the rate does not matter.
    pub(crate) is_answered: Arc<AtomicBool>,
}

/// Returns the body for the pool. It fails if it breaks a limit.
pub(crate) fn limited<B>(body: B, limits: BodyLimits) -> RequestBody
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Display,
{
    if body.is_end_stream() {
        // Most requests have no body, so nothing is kept in memory for it.
        return RequestBody::new(Empty::new().map_err(|never| match never {}));
    }
    RequestBody::new(Limited {
        body: Box::pin(body),
        limit: limits.bytes,
        left: limits.bytes,
        surplus: None,
        rate: BodyRate {
            limits,
            received: 0,
            owed: Duration::ZERO,
            since: None,
            late: None,
        },
    })
}

struct Limited<B> {
    body: Pin<Box<B>>,
    limit: u64,
    left: u64,
    /// The remaining bytes to discard, once the body was too large.
    surplus: Option<u64>,
    rate: BodyRate,
}

/// The rate of a body, measured over the time in which a reader waited for it.
struct BodyRate {
    limits: BodyLimits,
    received: u64,
    owed: Duration,
    /// The time since which a reader waits.
    since: Option<Instant>,
    /// The deadline of the current wait.
    late: Option<Pin<Box<Sleep>>>,
}

impl BodyRate {
    /// Counts bytes that have arrived.
    fn receives(&mut self, bytes: u64) {
        self.received = self.received.saturating_add(bytes);
        if let Some(since) = self.since.take() {
            self.owed += since.elapsed();
        }
        self.late = None;
    }

    /// Notes that a reader waits. Becomes ready if the body is too slow.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<ClientError> {
        let rate = self.limits.rate;
        if rate == 0 {
            return Poll::Pending;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        let late = self.late.get_or_insert_with(|| {
            // The rounding to milliseconds is exact enough.
            let earned = Duration::from_millis(self.received.saturating_mul(1000) / rate);
            let left = (self.limits.grace + earned).saturating_sub(self.owed);
            Box::pin(sleep_until(since + left))
        });
        ready!(late.as_mut().poll(context));
        if self.limits.is_answered.load(Ordering::Acquire) {
            self.limits.rate = 0;
            return Poll::Pending;
        }
        Poll::Ready(ClientError::TooSlow(rate))
    }
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
            let Poll::Ready(frame) = self.body.as_mut().poll_frame(context) else {
                let late = ready!(self.rate.poll_late(context));
                return Poll::Ready(Some(Err(late)));
            };
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
                    let mut trailers = frame.into_trailers().unwrap_or_default();
                    correlation::strip_trailers(&mut trailers);
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
            };
            let size = data.remaining() as u64;
            self.rate.receives(size);
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
    use http_body_util::Full;
    use std::collections::VecDeque;

    /// Frames that have all arrived.
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

    fn at_most(bytes: u64) -> BodyLimits {
        BodyLimits {
            bytes,
            rate: 1000,
            grace: Duration::from_secs(5),
            is_answered: Arc::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_times_out_unless_the_response_has_begun() {
        for is_answered in [false, true] {
            let (mut sender, body) = http_body_util::Channel::<Bytes, &str>::new(1);
            let limits = at_most(1 << 30);
            limits.is_answered.store(is_answered, Ordering::Release);
            let mut body = limited(body, limits);
            let begun = Instant::now();
            let sending = tokio::spawn(async move {
                for _ in 0..30 {
                    if sender.send_data(Bytes::from(vec![0; 500])).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            });
            let end = loop {
                match body.frame().await {
                    Some(Ok(_)) => {}
                    end => break end,
                }
            };
            let took = begun.elapsed();
            if is_answered {
                assert!(end.is_none() && took == Duration::from_secs(30), "{took:?}");
            } else {
                // The body has half of the required rate, so the grace period lasts twice as long.
                assert!(matches!(end, Some(Err(ClientError::TooSlow(1000)))));
                assert!((9..12).contains(&took.as_secs()), "{took:?}");
            }
            sending.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_without_a_waiting_reader_does_not_count() {
        let (mut sender, body) = http_body_util::Channel::<Bytes, &str>::new(1);
        let mut body = limited(body, at_most(1 << 30));
        for _ in 0..10 {
            sender.send_data(Bytes::from_static(b"x")).await.unwrap();
            assert!(body.frame().await.unwrap().is_ok());
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
    }

    #[tokio::test]
    async fn a_body_within_its_limit_passes_and_a_larger_one_is_rejected() {
        let fits = limited(Full::new(Bytes::from_static(b"12345")), at_most(5));
        assert_eq!(fits.collect().await.unwrap().to_bytes(), "12345");
        let frames = (0..4).map(|_| Ok(Frame::data(Bytes::from("12"))));
        let mut large = limited(Frames(frames.collect()), at_most(5));
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
    async fn a_broken_body_is_an_error_and_trailers_pass() {
        let broken = [Ok(Frame::data(Bytes::from("x"))), Err("gone")];
        let broken = limited(Frames(broken.into()), at_most(5));
        let error = broken.collect().await.unwrap_err();
        assert!(error.to_string().contains("gone"), "{error}");
        let mut fields = http::HeaderMap::new();
        fields.insert("x-t", http::HeaderValue::from_static("1"));
        for of_the_head in ["x-request-id", "traceparent", "tracestate"] {
            fields.append(of_the_head, http::HeaderValue::from_static("forged"));
            fields.append(of_the_head, http::HeaderValue::from_static("twice"));
        }
        let whole = limited(Frames([Ok(Frame::trailers(fields))].into()), at_most(0));
        let whole = whole.collect().await.unwrap();
        let trailers = whole.trailers().unwrap();
        assert_eq!(
            (trailers.len(), &trailers["x-t"]),
            (1, &http::HeaderValue::from_static("1"))
        );
    }
}
