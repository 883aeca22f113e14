//! The bodies that a function writes.
//!
//! Several may exist, and they may be written before their response is set, or their request is
//! sent. Until then their bytes wait here, up to [`MAX_PENDING`] in all. The body of the response
//! that was set goes to the platform as it is written, at the pace at which the platform takes it.
//! Waiting bytes of a request's body go to the platform whenever the function waits for anything,
//! so that sending never delays reading the response.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use faasw_abi::channel::{Channel, TAIL_MAX, Waits};
use faasw_abi::outgoing::{Failure, FailureCode, Tail};
use faasw_abi::wire::{Pair, encode_trailers};

use crate::platform::{Platform, SendError, send_whole};

/// Maximum waiting bytes of all bodies together.
const MAX_PENDING: usize = 1 << 20;

/// Identifies a body while its message or its resource exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BodyId(u64);

/// Destination of a body's bytes.
#[derive(Debug)]
enum Sink {
    /// The bytes wait for their message to be sent.
    Pending(Vec<u8>),
    /// The platform: the body's response is the one that was set.
    Platform,
    /// A server that the function calls.
    Call(Sending),
    /// None: the message will not be sent.
    Nowhere,
    /// None, and no more bytes are taken: the request is over.
    Closed,
}

/// Progress of the body of a request that was sent.
#[derive(Debug)]
struct Sending {
    channel: Channel,
    /// Bytes that were written before, and are still to be sent.
    waiting: Vec<u8>,
    /// The tail that follows these bytes, once the body has ended.
    tail: Option<Vec<u8>>,
}

impl Sending {
    /// Sends as much as there is space for, and returns how many bytes no longer wait.
    fn send_waiting(&mut self, platform: &mut impl Platform) -> usize {
        let sent = platform.send(self.channel, &self.waiting);
        self.waiting.drain(..sent);
        if self.waiting.is_empty()
            && let Some(tail) = self.tail.take()
        {
            // The tail's length was checked, and no other error exists.
            let _ = platform.finish(self.channel, &tail);
        }
        sent
    }
}

/// State of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The body can be written.
    Open,
    /// The body is complete, with these trailers.
    Finished(Vec<Pair>),
    /// The body was dropped, or finished with the wrong length.
    Truncated,
}

#[derive(Debug)]
struct Body {
    sink: Sink,
    /// The length that `content-length` declares.
    declared: Option<u64>,
    written: u64,
    end: End,
    /// Whether the message of the body still exists or was set as the answer.
    has_message: bool,
    /// Whether the message was set as the answer.
    is_answer: bool,
    /// Whether the message is an outbound call.
    is_request: bool,
}

/// The reason why a write failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteFailure {
    /// The body would exceed the declared length.
    TooLong { declared: u64 },
    /// The body is complete.
    Finished,
}

/// The reason why a body could not be finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinishFailure {
    /// The length differs from the declared one.
    Length { written: u64 },
    /// The platform refused the trailers.
    Refused(SendError),
    /// The trailers of a request have this many bytes, which is more than the maximum.
    Trailers { bytes: u64 },
}

/// The end of the body of the answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) end: End,
    pub(crate) bytes: u64,
}

/// The bodies that a function writes.
#[derive(Debug, Default)]
pub(crate) struct Bodies {
    bodies: BTreeMap<BodyId, Body>,
    next: u64,
    /// Number of bytes in all [`Sink::Pending`].
    pending: usize,
}

impl Bodies {
    /// Creates the body of a response.
    pub(crate) fn create(&mut self, declared: Option<u64>) -> BodyId {
        self.insert(declared, Sink::Pending(Vec::new()), false)
    }

    /// Creates the body of an outbound call.
    pub(crate) fn create_request(&mut self, declared: Option<u64>) -> BodyId {
        self.insert(declared, Sink::Pending(Vec::new()), true)
    }

    /// Creates a body whose bytes are discarded, because its request cannot be sent now. If bytes
    /// are written, the request can never be sent.
    pub(crate) fn create_unsent(&mut self, declared: Option<u64>) -> BodyId {
        self.insert(declared, Sink::Nowhere, true)
    }

    fn insert(&mut self, declared: Option<u64>, sink: Sink, is_request: bool) -> BodyId {
        let id = BodyId(self.next);
        self.next += 1;
        let body = Body {
            sink,
            declared,
            written: 0,
            end: End::Open,
            has_message: true,
            is_answer: false,
            is_request,
        };
        self.bodies.insert(id, body);
        id
    }

    /// Sets the length that the body of a response must have, if any.
    pub(crate) fn expect(&mut self, id: BodyId, declared: Option<u64>) {
        if let Some(body) = self.bodies.get_mut(&id) {
            body.declared = declared;
        }
    }

    /// Returns how many bytes the body takes now.
    pub(crate) fn room(&self, id: BodyId, platform: &impl Platform) -> u64 {
        match self.bodies.get(&id).map(|body| &body.sink) {
            Some(Sink::Pending(_)) => (MAX_PENDING - self.pending) as u64,
            Some(Sink::Platform) => platform.room(Channel::INVOCATION) as u64,
            Some(Sink::Call(sending)) if sending.waiting.is_empty() => {
                platform.room(sending.channel) as u64
            }
            Some(Sink::Call(_)) => 0,
            Some(Sink::Nowhere | Sink::Closed) | None => u64::MAX,
        }
    }

    /// Returns whether this is the body of an outbound call.
    pub(crate) fn is_of_request(&self, id: BodyId) -> bool {
        self.bodies.get(&id).is_some_and(|body| body.is_request)
    }

    /// Returns the events to wait for until the body takes more; none while the body is not sent.
    pub(crate) fn waits(&self, id: BodyId) -> Waits {
        match self.bodies.get(&id).map(|body| &body.sink) {
            Some(Sink::Platform) => Waits::room(Channel::INVOCATION),
            Some(Sink::Call(sending)) => Waits::room(sending.channel),
            _ => Waits::default(),
        }
    }

    /// Returns the events to wait for until [`Bodies::send_waiting`] can continue.
    pub(crate) fn unsent(&self) -> Waits {
        let mut waits = Waits::default();
        for body in self.bodies.values() {
            if let Sink::Call(sending) = &body.sink
                && !sending.waiting.is_empty()
            {
                waits = waits.and(Waits::room(sending.channel));
            }
        }
        waits
    }

    /// Sends waiting bytes of requests, as far as there is space.
    pub(crate) fn send_waiting(&mut self, platform: &mut impl Platform) {
        // Most functions have no such body.
        if self.pending == 0 {
            return;
        }
        for body in self.bodies.values_mut() {
            if let Sink::Call(sending) = &mut body.sink {
                self.pending -= sending.send_waiting(platform);
            }
        }
    }

    /// Returns whether the body's bytes are being sent.
    pub(crate) fn is_sent(&self, id: BodyId) -> bool {
        !self.waits(id).is_empty()
    }

    /// Returns whether the function neither finished nor dropped the body.
    pub(crate) fn is_open(&self, id: BodyId) -> bool {
        self.bodies
            .get(&id)
            .is_some_and(|body| body.end == End::Open)
    }

    /// Writes to the body. The caller traps if `bytes` exceed [`Bodies::room`]. If there is less
    /// space even so, the body of the answer waits for it, and the rest of an outbound call's body
    /// waits in memory.
    pub(crate) fn write(
        &mut self,
        id: BodyId,
        bytes: &[u8],
        platform: &mut impl Platform,
    ) -> Result<(), WriteFailure> {
        let body = self.bodies.get_mut(&id).ok_or(WriteFailure::Finished)?;
        if body.end != End::Open || matches!(body.sink, Sink::Closed) {
            return Err(WriteFailure::Finished);
        }
        let written = body.written.saturating_add(bytes.len() as u64);
        if let Some(declared) = body.declared.filter(|declared| written > *declared) {
            return Err(WriteFailure::TooLong { declared });
        }
        match &mut body.sink {
            Sink::Pending(waiting) => {
                waiting.extend_from_slice(bytes);
                self.pending += bytes.len();
            }
            Sink::Platform => send_whole(platform, Channel::INVOCATION, bytes),
            Sink::Call(sending) => {
                let sent = if sending.waiting.is_empty() {
                    platform.send(sending.channel, bytes)
                } else {
                    0
                };
                let rest = bytes.get(sent..).unwrap_or_default();
                sending.waiting.extend_from_slice(rest);
                self.pending += rest.len();
            }
            Sink::Nowhere | Sink::Closed => {}
        }
        body.written = written;
        Ok(())
    }

    /// Makes the body that of the answer: sends waiting and future bytes, or discards them if
    /// `is_head` is set.
    pub(crate) fn send(
        &mut self,
        id: BodyId,
        is_head: bool,
        platform: &mut impl Platform,
    ) -> Result<(), SendError> {
        let sink = if is_head {
            Sink::Nowhere
        } else {
            Sink::Platform
        };
        if let Some(body) = self.bodies.get_mut(&id) {
            body.is_answer = true;
        }
        let Some(waiting) = self.redirect(id, sink) else {
            return Ok(());
        };
        if !is_head {
            send_whole(platform, Channel::INVOCATION, &waiting);
        }
        match self.bodies.get(&id).map(|body| &body.end) {
            Some(End::Finished(trailers)) => {
                platform.finish(Channel::INVOCATION, &encode_trailers(trailers))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether written bytes of a request's body were discarded: it can never be sent as
    /// intended.
    pub(crate) fn has_lost(&self, id: BodyId) -> bool {
        self.bodies
            .get(&id)
            .is_some_and(|body| body.written > 0 && matches!(body.sink, Sink::Nowhere))
    }

    /// Returns whether nothing follows the head of a request with this body.
    pub(crate) fn is_empty(&self, id: BodyId) -> bool {
        self.bodies.get(&id).is_none_or(|body| {
            body.written == 0 && matches!(&body.end, End::Finished(fields) if fields.is_empty())
        })
    }

    /// Sends the waiting and future bytes of the body of a request, which was sent on a channel.
    pub(crate) fn send_request(
        &mut self,
        id: BodyId,
        channel: Channel,
        platform: &mut impl Platform,
    ) {
        let waiting = self.redirect(id, Sink::Nowhere).unwrap_or_default();
        let Some(body) = self.bodies.get_mut(&id) else {
            return;
        };
        let mut sending = Sending {
            channel,
            waiting,
            tail: match &body.end {
                End::Open => None,
                End::Finished(trailers) => Some(Tail::Trailers(trailers.clone()).encode()),
                End::Truncated => Some(unfinished()),
            },
        };
        sending.send_waiting(platform);
        self.pending += sending.waiting.len();
        body.sink = Sink::Call(sending);
    }

    /// Closes the body of a request that is over: no more bytes are taken.
    pub(crate) fn close(&mut self, id: BodyId) {
        drop(self.redirect(id, Sink::Closed));
        if let Some(body) = self.bodies.get_mut(&id) {
            body.has_message = false;
        }
        self.forget_if_done(id);
    }

    /// Discards the waiting and future bytes of a body whose message is gone.
    pub(crate) fn abandon(&mut self, id: BodyId) {
        drop(self.redirect(id, Sink::Nowhere));
        if let Some(body) = self.bodies.get_mut(&id) {
            body.has_message = false;
        }
        self.forget_if_done(id);
    }

    /// Completes the body. `may_be_absent` is set for answers to HEAD, which declare a length and
    /// have no body.
    pub(crate) fn finish(
        &mut self,
        id: BodyId,
        trailers: Vec<Pair>,
        may_be_absent: bool,
        platform: &mut impl Platform,
    ) -> Result<(), FinishFailure> {
        let Some(body) = self.bodies.get_mut(&id) else {
            return Ok(());
        };
        let written = body.written;
        let absent = may_be_absent && written == 0 && !body.is_request;
        let mismatch = body
            .declared
            .is_some_and(|declared| declared != written && !absent);
        let result = if mismatch {
            body.end = End::Truncated;
            if let Sink::Call(sending) = &mut body.sink {
                sending.tail = Some(failed(FailureCode::HttpRequestBodySize, written));
                self.pending -= sending.send_waiting(platform);
            }
            Err(FinishFailure::Length { written })
        } else if body.is_request {
            let tail = Tail::Trailers(trailers.clone()).encode();
            let bytes = tail.len() as u64;
            let (end, tail, result) = match bytes {
                0..=TAIL_MAX => (End::Finished(trailers), tail, Ok(())),
                _ => (
                    End::Truncated,
                    failed(FailureCode::HttpRequestTrailerSectionSize, bytes),
                    Err(FinishFailure::Trailers { bytes }),
                ),
            };
            body.end = end;
            if let Sink::Call(sending) = &mut body.sink {
                sending.tail = Some(tail);
                self.pending -= sending.send_waiting(platform);
            }
            result
        } else {
            let sent = if body.is_answer {
                platform.finish(Channel::INVOCATION, &encode_trailers(&trailers))
            } else {
                Ok(())
            };
            body.end = End::Finished(trailers);
            sent.map_err(FinishFailure::Refused)
        };
        self.forget_if_done(id);
        result
    }

    /// Ends a body that the function dropped without completing it.
    pub(crate) fn truncate(&mut self, id: BodyId, platform: &mut impl Platform) {
        if let Some(body) = self.bodies.get_mut(&id) {
            body.end = End::Truncated;
            if let Sink::Call(sending) = &mut body.sink {
                sending.tail = Some(unfinished());
                self.pending -= sending.send_waiting(platform);
            }
        }
        self.forget_if_done(id);
    }

    /// Removes the body of the answer, and returns how it ended.
    pub(crate) fn take(&mut self, id: BodyId) -> Option<Written> {
        let body = self.bodies.remove(&id)?;
        Some(Written {
            end: body.end,
            bytes: body.written,
        })
    }

    /// Changes the destination of the body, and returns the bytes that waited.
    fn redirect(&mut self, id: BodyId, sink: Sink) -> Option<Vec<u8>> {
        let body = self.bodies.get_mut(&id)?;
        match core::mem::replace(&mut body.sink, sink) {
            Sink::Pending(waiting) => {
                self.pending -= waiting.len();
                Some(waiting)
            }
            Sink::Call(sending) => {
                self.pending -= sending.waiting.len();
                Some(sending.waiting)
            }
            Sink::Platform | Sink::Nowhere | Sink::Closed => None,
        }
    }

    fn forget_if_done(&mut self, id: BodyId) {
        let done = |body: &Body| !body.has_message && body.end != End::Open;
        if self.bodies.get(&id).is_some_and(done) {
            self.bodies.remove(&id);
        }
    }
}

/// Returns a tail that reports an incomplete body, because the body or its trailers have a wrong
/// number of bytes.
fn failed(code: FailureCode, bytes: u64) -> Vec<u8> {
    let failure = Failure {
        number: Some(bytes),
        ..Failure::new(code)
    };
    Tail::Failed(failure).encode()
}

/// Returns a tail that reports an incomplete body, because the function dropped it.
fn unfinished() -> Vec<u8> {
    let why = "the function did not finish the body of its request";
    Tail::Failed(Failure::with_text(FailureCode::InternalError, why)).encode()
}
