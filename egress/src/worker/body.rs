//! A request body on its way to the upstream.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use faasw_abi::outgoing::{Failure, FailureCode, Tail};
use faasw_abi::wire::Pair;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use super::{RequestPart, Worker};
use crate::credit::ConsumedBytes;
use crate::frames::{FromWorker, credit_bytes};

/// How long a head waits for the first part of its body. A body that is empty or complete by then
/// needs no chunks, which some servers do not accept, and its trailers are known. Functions with
/// such a body send it at once. A function that sends a head first, and a body in reaction to the
/// response, waits this long once.
const FIRST_PART: Duration = Duration::from_millis(10);

/// The text of the failure of a function whose trailers cannot be sent.
const LOST_TRAILERS: &str =
    "trailers that the request's head does not name in `trailer`, or has no place for";

fn lost_trailers() -> Failure {
    Failure::with_text(FailureCode::InternalError, LOST_TRAILERS)
}

/// The source of a request body. It outlives the attempts to send the body.
pub struct BodySource {
    worker: Rc<Worker>,
    call: u64,
    parts: RefCell<mpsc::UnboundedReceiver<RequestPart>>,
    queue: RefCell<VecDeque<Bytes>>,
    /// The trailers; `None` until the end of the body has arrived.
    tail: RefCell<Option<Vec<Pair>>>,
    /// Names of the trailers that can be sent; `None` if all can.
    places: RefCell<Option<Vec<HeaderName>>>,
    /// The `content-length` that the function declared.
    declared: Option<u64>,
    taken: Cell<u64>,
    /// Whether an attempt has taken any of it, or its end.
    is_begun: Cell<bool>,
    is_done: Cell<bool>,
    consumed: RefCell<ConsumedBytes>,
    failure: RefCell<Option<Failure>>,
}

/// The body cannot be sent on; the source knows the reason.
#[derive(Debug, thiserror::Error)]
#[error("the request's body ends early")]
pub struct BodySourceFailed;

impl BodySource {
    pub fn new(
        worker: &Rc<Worker>,
        call: u64,
        parts: mpsc::UnboundedReceiver<RequestPart>,
        declared: Option<u64>,
    ) -> Rc<Self> {
        Rc::new(Self {
            worker: worker.clone(),
            call,
            parts: RefCell::new(parts),
            queue: RefCell::default(),
            tail: RefCell::default(),
            places: RefCell::default(),
            declared,
            taken: Cell::new(0),
            is_begun: Cell::new(false),
            is_done: Cell::new(false),
            consumed: RefCell::default(),
            failure: RefCell::default(),
        })
    }

    /// Waits for [`FIRST_PART`] at most for the first part, and takes what has arrived. Returns at
    /// once if the function declared a length.
    pub async fn wait_for_first_part(&self) {
        if self.declared.is_some() {
            return;
        }
        let first = std::future::poll_fn(|context| self.poll_fill(context));
        // If nothing arrives in time, the head is sent alone.
        let _ = tokio::time::timeout(FIRST_PART, first).await;
    }

    /// Takes the parts that have arrived; ready once there is any.
    fn poll_fill(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut parts = self.parts.borrow_mut();
        let mut queue = self.queue.borrow_mut();
        while self.tail.borrow().is_none() && self.failure.borrow().is_none() {
            match parts.poll_recv(context) {
                Poll::Ready(Some(RequestPart::Data(data))) => queue.push_back(data),
                Poll::Ready(Some(RequestPart::End(Tail::Trailers(fields)))) => {
                    *self.tail.borrow_mut() = Some(fields);
                }
                Poll::Ready(Some(RequestPart::End(Tail::Failed(failure)))) => {
                    *self.failure.borrow_mut() = Some(failure);
                }
                // The call was removed.
                Poll::Ready(None) => {
                    let failure = Failure::new(FailureCode::InternalError);
                    *self.failure.borrow_mut() = Some(failure);
                }
                Poll::Pending if queue.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(())
    }

    /// Returns the names of the trailers, as far as they are known.
    pub fn trailer_names(&self) -> Vec<Vec<u8>> {
        let names = |fields: &Vec<Pair>| fields.iter().map(|(name, _)| name.clone()).collect();
        self.tail.borrow().as_ref().map(names).unwrap_or_default()
    }

    /// Records which trailers this attempt can send: those with these names, or all if `places` is
    /// `None`.
    pub fn restrict_trailers(&self, places: Option<Vec<HeaderName>>) {
        *self.places.borrow_mut() = places;
    }

    /// Records that the end of the body has been sent, without trailers.
    pub fn mark_ended(&self) {
        self.is_done.set(true);
        self.restrict_trailers(Some(Vec::new()));
    }

    /// Returns whether there are trailers that cannot be sent: they would be lost.
    fn has_lost_trailers(&self) -> bool {
        let places = self.places.borrow();
        let Some(places) = places.as_deref() else {
            return false;
        };
        let is_lost = |(name, _): &Pair| {
            let is_it = |it: &HeaderName| it.as_str().as_bytes().eq_ignore_ascii_case(name);
            !places.iter().any(is_it)
        };
        let tail = self.tail.borrow();
        tail.as_deref().unwrap_or_default().iter().any(is_lost)
    }

    /// Checks for trailers after the last byte of a body of known length. No reader polls for them.
    ///
    /// # Errors
    /// Fails with `InternalError` if there are trailers, which cannot be sent.
    pub fn check_trailers(&self) -> Result<(), Failure> {
        if self.is_done() {
            // A single poll, which does not wait for more.
            let _ = self.poll_fill(&mut Context::from_waker(Waker::noop()));
            if self.has_lost_trailers() {
                return Err(lost_trailers());
            }
        }
        Ok(())
    }

    /// Returns whether nothing of the body has been sent, so that another attempt can send all of
    /// it.
    pub fn is_untouched(&self) -> bool {
        !self.is_begun.get() || self.is_empty()
    }

    /// Returns whether the body is known to have neither bytes nor trailers.
    pub fn is_empty(&self) -> bool {
        self.size() == Some(0) && self.taken.get() == 0
    }

    /// Returns whether all of the body has been sent.
    pub fn is_done(&self) -> bool {
        // After the last byte of a known length no reader polls for more.
        self.is_done.get() || self.size() == Some(0)
    }

    /// Returns why the body cannot be sent, if it cannot.
    pub fn failure(&self) -> Option<Failure> {
        self.failure.borrow().clone()
    }

    /// Returns how many bytes are still to be sent, if that is known and there are no trailers.
    pub fn size(&self) -> Option<u64> {
        let left = |declared: u64| declared.saturating_sub(self.taken.get());
        match (self.tail.borrow().as_deref(), self.declared) {
            // A `content-length` in the head leaves no place for trailers.
            (Some([_, ..]), _) => None,
            (_, Some(declared)) => Some(left(declared)),
            (Some([]), None) => Some(
                self.queue
                    .borrow()
                    .iter()
                    .map(|data| data.len() as u64)
                    .sum(),
            ),
            (None, None) => None,
        }
    }

    /// Records that the body is not of its declared length; `size` is the length that it reached.
    fn wrong_size(&self, size: u64) -> BodySourceFailed {
        *self.failure.borrow_mut() = Some(Failure {
            number: Some(size),
            ..Failure::new(FailureCode::HttpRequestBodySize)
        });
        BodySourceFailed
    }

    /// Polls for the next frame; `None` after the last.
    pub fn poll(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodySourceFailed>>> {
        self.is_begun.set(true);
        if self.is_done.get() {
            return Poll::Ready(None);
        }
        std::task::ready!(self.poll_fill(context));
        let data = self.queue.borrow_mut().pop_front();
        if let Some(data) = data {
            let taken = self.taken.get() + data.len() as u64;
            self.taken.set(taken);
            if self.declared.is_some_and(|declared| taken > declared) {
                return Poll::Ready(Some(Err(self.wrong_size(taken))));
            }
            if let Some(bytes) = self.consumed.borrow_mut().take(data.len()) {
                self.worker
                    .send_frame(self.call, FromWorker::Credit, &credit_bytes(bytes));
            }
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if self.failure.borrow().is_some() {
            return Poll::Ready(Some(Err(BodySourceFailed)));
        }
        let taken = self.taken.get();
        if self.declared.is_some_and(|declared| taken < declared) {
            return Poll::Ready(Some(Err(self.wrong_size(taken))));
        }
        if self.has_lost_trailers() {
            *self.failure.borrow_mut() = Some(lost_trailers());
            return Poll::Ready(Some(Err(BodySourceFailed)));
        }
        self.is_done.set(true);
        let tail = self.tail.borrow();
        Poll::Ready(
            trailers(tail.as_deref().unwrap_or_default()).map(|map| Ok(Frame::trailers(map))),
        )
    }
}

/// Pieces that have arrived are joined until they have this many bytes: the HTTP/2 frame size that
/// every peer accepts.
const JOINED: usize = 16 << 10;

impl BodySource {
    /// Joins a piece that was taken with those that have arrived after it, so that a server does
    /// not get as many frames as the function makes writes.
    pub fn join(&self, first: Bytes) -> Bytes {
        let mut context = Context::from_waker(Waker::noop());
        let mut joined = BytesMut::new();
        while joined.len().max(first.len()) < JOINED {
            // The end of the body, or its failure, is left for the next poll.
            let _ = self.poll_fill(&mut context);
            if self.queue.borrow().is_empty() {
                break;
            }
            let Poll::Ready(Some(Ok(frame))) = self.poll(&mut context) else {
                break;
            };
            if let Ok(data) = frame.into_data() {
                if joined.is_empty() {
                    joined.extend_from_slice(&first);
                }
                joined.extend_from_slice(&data);
            }
        }
        if joined.is_empty() {
            first
        } else {
            joined.freeze()
        }
    }
}

/// Converts trailers for hyper. Invalid fields are left out: they were rejected where the function
/// created them.
fn trailers(fields: &[Pair]) -> Option<HeaderMap> {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            map.append(name, value);
        }
    }
    (!map.is_empty()).then_some(map)
}

/// An attempt to send the body.
pub struct RequestBody(pub Rc<BodySource>);

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodySourceFailed;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodySourceFailed>>> {
        self.0.poll(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_done()
    }

    fn size_hint(&self) -> SizeHint {
        self.0
            .size()
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
