//! A request's body on its way to the upstream.

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
use crate::credit::Consumed;
use crate::frames::{FromWorker, credit_bytes};

/// How long a head waits for the first part of its body. A body that turns out to be empty, or is
/// all there, needs no chunks, which some servers do not take, and its trailers are known;
/// functions that have one say so at once. One that sends a head first, and a body on what it is
/// answered, waits this long once.
const FIRST_PART: Duration = Duration::from_millis(10);

/// What a function is told whose trailers cannot be sent.
const LOST_TRAILERS: &str =
    "trailers that the request's head does not name in `trailer`, or has no place for";

fn lost_trailers() -> Failure {
    Failure::with_text(FailureCode::InternalError, LOST_TRAILERS)
}

/// What a request's body is made of; outlives the attempts to send it.
pub struct Source {
    worker: Rc<Worker>,
    call: u64,
    parts: RefCell<mpsc::UnboundedReceiver<RequestPart>>,
    queue: RefCell<VecDeque<Bytes>>,
    /// What is behind it; `None` while it goes on.
    tail: RefCell<Option<Vec<Pair>>>,
    /// Names of trailers that there is a place for; `None` where all have one.
    places: RefCell<Option<Vec<HeaderName>>>,
    /// How many bytes the function said it has.
    declared: Option<u64>,
    taken: Cell<u64>,
    /// Whether an attempt has taken any of it, or its end.
    is_begun: Cell<bool>,
    is_done: Cell<bool>,
    consumed: RefCell<Consumed>,
    failure: RefCell<Option<Failure>>,
}

/// It cannot be sent on; the source knows why.
#[derive(Debug, thiserror::Error)]
#[error("the request's body ends in the middle")]
pub struct Broken;

impl Source {
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

    /// Waits a moment for the first part, and takes what is there.
    pub async fn settle(&self) {
        if self.declared.is_some() {
            return;
        }
        let first = std::future::poll_fn(|context| self.poll_fill(context));
        // Where none comes, the head goes alone.
        let _ = tokio::time::timeout(FIRST_PART, first).await;
    }

    /// Takes what is there; ready once anything is.
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
                // Nobody has the call any more.
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

    /// Names of its trailers, as far as they are known.
    pub fn trailer_names(&self) -> Vec<Vec<u8>> {
        let names = |fields: &Vec<Pair>| fields.iter().map(|(name, _)| name.clone()).collect();
        self.tail.borrow().as_ref().map(names).unwrap_or_default()
    }

    /// It is sent now. `places` are names of the trailers that there is a place for; `None` where
    /// all have one.
    pub fn is_sent_with(&self, places: Option<Vec<HeaderName>>) {
        *self.places.borrow_mut() = places;
    }

    /// Its end has been sent, with no trailers.
    pub fn ends(&self) {
        self.is_done.set(true);
        self.is_sent_with(Some(Vec::new()));
    }

    /// Whether there are trailers that have no place: they would be lost.
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

    /// Looks at what has come behind the last byte of a known length, for which nobody asks.
    ///
    /// # Errors
    /// When there are trailers, which cannot be sent.
    pub fn look_behind(&self) -> Result<(), Failure> {
        if self.is_done() {
            // Whether it comes or not: nobody waits for it.
            let _ = self.poll_fill(&mut Context::from_waker(Waker::noop()));
            if self.has_lost_trailers() {
                return Err(lost_trailers());
            }
        }
        Ok(())
    }

    /// Whether nothing of it has been sent: another attempt can send all of it.
    pub fn is_untouched(&self) -> bool {
        !self.is_begun.get() || self.is_empty()
    }

    /// Whether it is known to have neither bytes nor trailers.
    pub fn is_empty(&self) -> bool {
        self.size() == Some(0) && self.taken.get() == 0
    }

    /// Whether all of it has been sent.
    pub fn is_done(&self) -> bool {
        // Behind the last byte of a known length nobody asks for more.
        self.is_done.get() || self.size() == Some(0)
    }

    /// Why it cannot be sent, where it cannot.
    pub fn failure(&self) -> Option<Failure> {
        self.failure.borrow().clone()
    }

    /// How many bytes are still to be sent, where that is known and there are no trailers.
    pub fn size(&self) -> Option<u64> {
        let left = |declared: u64| declared.saturating_sub(self.taken.get());
        match (self.tail.borrow().as_deref(), self.declared) {
            // A length in the head leaves no place for trailers.
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

    /// The function said how long it is, and it is not: fails with how long it became.
    fn wrong_size(&self, size: u64) -> Broken {
        *self.failure.borrow_mut() = Some(Failure {
            number: Some(size),
            ..Failure::new(FailureCode::HttpRequestBodySize)
        });
        Broken
    }

    /// The next frame; `None` behind the last.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
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
                    .say(self.call, FromWorker::Credit, &credit_bytes(bytes));
            }
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if self.failure.borrow().is_some() {
            return Poll::Ready(Some(Err(Broken)));
        }
        let taken = self.taken.get();
        if self.declared.is_some_and(|declared| taken < declared) {
            return Poll::Ready(Some(Err(self.wrong_size(taken))));
        }
        if self.has_lost_trailers() {
            *self.failure.borrow_mut() = Some(lost_trailers());
            return Poll::Ready(Some(Err(Broken)));
        }
        self.is_done.set(true);
        let tail = self.tail.borrow();
        Poll::Ready(
            trailers(tail.as_deref().unwrap_or_default()).map(|map| Ok(Frame::trailers(map))),
        )
    }
}

/// Bytes that pieces are joined to where they are there: a frame of HTTP/2 as everybody takes it.
const JOINED: usize = 16 << 10;

impl Source {
    /// A piece that was taken, and those behind it that are there: a server need not bear with as
    /// many frames as a function writes bytes.
    pub fn join(&self, first: Bytes) -> Bytes {
        let mut context = Context::from_waker(Waker::noop());
        let mut joined = BytesMut::new();
        while joined.len().max(first.len()) < JOINED {
            // Its end, or why there is none, is for who asks next.
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

/// Trailers as hyper has them; what is none was refused where the function made it.
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

/// An attempt to send it.
pub struct RequestBody(pub Rc<Source>);

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
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
