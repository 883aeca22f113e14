//! Whether the client of an HTTP/2 connection still does its part.
//!
//! A client that answers pings but never opens its window holds what its
//! responses have come to, and neither hyper nor the socket's write timeout sees
//! that; one that asks for nothing more holds its connection. HTTP/1 needs none
//! of this: there both show at the socket.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

use crate::message::{Body, BodyError};

/// Most bytes that a client is given at once: it has the whole of its patience
/// for each.
const PIECE: usize = 32 << 10;

/// What goes on on one connection.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    next: u64,
    /// Requests under way, each with the time since which its client has been
    /// given a piece and has not taken it.
    requests: BTreeMap<u64, Option<Instant>>,
    /// When the last of them ended.
    rested: Instant,
}

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                next: 0,
                requests: BTreeMap::new(),
                rested: Instant::now(),
            }),
        })
    }

    /// A request is under way until what this gives is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.requests.insert(number, None);
        UnderWay {
            activity: self.clone(),
            number,
        }
    }

    /// Waits until the client has taken nothing of a response for `stalled`, or
    /// has asked for nothing for `idle`. Never comes back before the first request.
    pub(super) async fn rest(&self, stalled: Duration, idle: Duration) {
        loop {
            tokio::time::sleep(stalled.min(idle) / 2).await;
            let state = self.state();
            let is_stalled = state
                .requests
                .values()
                .flatten()
                .any(|since| since.elapsed() >= stalled);
            let is_idle =
                state.next > 0 && state.requests.is_empty() && state.rested.elapsed() >= idle;
            if is_stalled || is_idle {
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It is whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct UnderWay {
    activity: Arc<Activity>,
    number: u64,
}

impl UnderWay {
    fn gave(&self, since: Option<Instant>) {
        if let Some(gave) = self.activity.state().requests.get_mut(&self.number) {
            *gave = since;
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.activity.state();
        state.requests.remove(&self.number);
        state.rested = Instant::now();
    }
}

/// A response's body; with a request to watch, in pieces.
#[derive(Debug)]
pub(super) struct Watched {
    body: Body,
    rest: Bytes,
    request: Option<UnderWay>,
}

impl Watched {
    pub(super) fn new(body: Body, request: Option<UnderWay>) -> Self {
        Self {
            body,
            rest: Bytes::new(),
            request,
        }
    }
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let Some(request) = &this.request else {
            return Pin::new(&mut this.body).poll_frame(context);
        };
        // Whoever asks for more has taken what it was given.
        request.gave(None);
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                end => return Poll::Ready(end),
            }
        }
        request.gave(Some(Instant::now()));
        let piece = this.rest.split_to(this.rest.len().min(PIECE));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(inner.lower() + rest);
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    const STALLED: Duration = Duration::from_secs(30);
    const IDLE: Duration = Duration::from_secs(60);

    /// How long the client may go on like this.
    async fn until_rest(activity: &Activity) -> Duration {
        let begun = Instant::now();
        activity.rest(STALLED, IDLE).await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_stalled_and_one_that_waits_is_not() {
        let activity = Activity::new();
        let request = activity.begin();
        let mut body = Watched::new(Body::from(vec![b'x'; 100_000]), Some(request));
        assert_eq!(http_body::Body::size_hint(&body).exact(), Some(100_000));
        let waiting = tokio::time::timeout(Duration::from_secs(600), until_rest(&activity));
        // Nothing was given to it yet.
        assert!(waiting.await.is_err());
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first.len(), PIECE);
        assert_eq!(
            http_body::Body::size_hint(&body).exact(),
            Some(100_000 - PIECE as u64)
        );
        assert!(until_rest(&activity).await >= STALLED);
        let rest = body.collect().await.unwrap().to_bytes();
        assert_eq!(rest.len(), 100_000 - PIECE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_asks_for_nothing_more_is_idle() {
        let activity = Activity::new();
        let never = tokio::time::timeout(Duration::from_secs(600), until_rest(&activity));
        assert!(never.await.is_err(), "before its first request");
        drop(activity.begin());
        let took = until_rest(&activity).await;
        assert!(took >= IDLE && took < IDLE + STALLED, "{took:?}");
    }
}
