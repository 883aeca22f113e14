//! The bodies that a function writes.
//!
//! Several may exist, and they may be written before their response is set.
//! Until then their bytes wait here, up to [`MAX_PENDING`] in all; the body of
//! the response that is set goes to the platform as it is written, at the pace
//! at which that takes it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use faasw_abi::channel::Channel;
use faasw_abi::wire::{Pair, encode_trailers};

use crate::platform::{Platform, SendError, send_whole};

/// Most bytes that wait for a response to be set, over all bodies.
const MAX_PENDING: usize = 1 << 20;

/// Names a body for as long as its message or its resource exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BodyId(u64);

/// Where the bytes of a body go.
#[derive(Debug)]
enum Sink {
    /// They wait for their response to be set.
    Pending(Vec<u8>),
    /// To the platform: their response is the one that was set.
    Platform,
    /// Nowhere: their message will not be sent.
    Nowhere,
}

/// How far a body is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It can be written.
    Open,
    /// It is complete, with these trailers.
    Finished(Vec<Pair>),
    /// It was dropped, or finished with the wrong length.
    Truncated,
}

#[derive(Debug)]
struct Body {
    sink: Sink,
    /// What `content-length` promises.
    declared: Option<u64>,
    written: u64,
    end: End,
    /// The message that it belongs to still exists or was set as the answer.
    has_message: bool,
    /// The message was set as the answer.
    is_answer: bool,
}

/// Why a write failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteFailure {
    /// It goes beyond the declared length.
    TooLong { declared: u64 },
    /// The body is complete.
    Finished,
}

/// Why a body could not be finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinishFailure {
    /// It has another length than declared.
    Length { written: u64 },
    /// The platform did not take its trailers.
    Refused(SendError),
}

/// How the body of the answer ended.
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
    /// Bytes in all [`Sink::Pending`].
    pending: usize,
}

impl Bodies {
    /// A body of a response.
    pub(crate) fn create(&mut self, declared: Option<u64>) -> BodyId {
        self.insert(declared, Sink::Pending(Vec::new()))
    }

    /// A body whose bytes go nowhere, because requests are never sent.
    pub(crate) fn create_unsent(&mut self, declared: Option<u64>) -> BodyId {
        self.insert(declared, Sink::Nowhere)
    }

    fn insert(&mut self, declared: Option<u64>, sink: Sink) -> BodyId {
        let id = BodyId(self.next);
        self.next += 1;
        let body = Body {
            sink,
            declared,
            written: 0,
            end: End::Open,
            has_message: true,
            is_answer: false,
        };
        self.bodies.insert(id, body);
        id
    }

    /// How many bytes the body takes now.
    pub(crate) fn room(&self, id: BodyId, platform: &impl Platform) -> u64 {
        match self.bodies.get(&id).map(|body| &body.sink) {
            Some(Sink::Pending(_)) => (MAX_PENDING - self.pending) as u64,
            Some(Sink::Platform) => platform.room(Channel::INVOCATION) as u64,
            Some(Sink::Nowhere) | None => u64::MAX,
        }
    }

    /// Whether the body's bytes are on their way to the client.
    pub(crate) fn is_sent(&self, id: BodyId) -> bool {
        matches!(
            self.bodies.get(&id).map(|body| &body.sink),
            Some(Sink::Platform)
        )
    }

    /// Whether the function neither finished nor dropped the body.
    pub(crate) fn is_open(&self, id: BodyId) -> bool {
        self.bodies
            .get(&id)
            .is_some_and(|body| body.end == End::Open)
    }

    /// Writes to the body. Where its [`Bodies::room`] is less, a body that is
    /// sent waits until there is more, and others trap before this is called.
    pub(crate) fn write(
        &mut self,
        id: BodyId,
        bytes: &[u8],
        platform: &mut impl Platform,
    ) -> Result<(), WriteFailure> {
        let body = self.bodies.get_mut(&id).ok_or(WriteFailure::Finished)?;
        if body.end != End::Open {
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
            Sink::Nowhere => {}
        }
        body.written = written;
        Ok(())
    }

    /// The body's response is the answer: sends what waits and what will come,
    /// or throws it away where `is_head` says that nobody wants it.
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

    /// The body's message is gone: what waits and what will come goes nowhere.
    pub(crate) fn abandon(&mut self, id: BodyId) {
        drop(self.redirect(id, Sink::Nowhere));
        if let Some(body) = self.bodies.get_mut(&id) {
            body.has_message = false;
        }
        self.forget_if_done(id);
    }

    /// The function completed the body. `may_be_absent` for answers to HEAD,
    /// which declare a length and have no body.
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
        let absent = may_be_absent && written == 0;
        let mismatch = body
            .declared
            .is_some_and(|declared| declared != written && !absent);
        let result = if mismatch {
            body.end = End::Truncated;
            Err(FinishFailure::Length { written })
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

    /// The function dropped the body without completing it.
    pub(crate) fn truncate(&mut self, id: BodyId) {
        if let Some(body) = self.bodies.get_mut(&id) {
            body.end = End::Truncated;
        }
        self.forget_if_done(id);
    }

    /// How the body of the answer ended; nothing more can be written to it.
    pub(crate) fn take(&mut self, id: BodyId) -> Option<Written> {
        let body = self.bodies.remove(&id)?;
        Some(Written {
            end: body.end,
            bytes: body.written,
        })
    }

    /// Changes where the body goes; the bytes that waited.
    fn redirect(&mut self, id: BodyId, sink: Sink) -> Option<Vec<u8>> {
        let body = self.bodies.get_mut(&id)?;
        match core::mem::replace(&mut body.sink, sink) {
            Sink::Pending(waiting) => {
                self.pending -= waiting.len();
                Some(waiting)
            }
            Sink::Platform | Sink::Nowhere => None,
        }
    }

    fn forget_if_done(&mut self, id: BodyId) {
        let done = |body: &Body| !body.has_message && body.end != End::Open;
        if self.bodies.get(&id).is_some_and(done) {
            self.bodies.remove(&id);
        }
    }
}
