//! The bodies that a function writes.
//!
//! Several may exist, and they may be written before their response is set.
//! Until then their bytes wait here, up to [`MAX_PENDING`] in all; the body of
//! the response that is set goes to the platform as it is written.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use faasw_abi::wire::Pair;

use crate::platform::{Platform, SendError};

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
}

/// Why a write failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteFailure {
    /// It goes beyond the declared length.
    TooLong { declared: u64 },
    /// The body is complete.
    Finished,
    /// The platform did not take it.
    Refused(SendError),
}

/// A body finished with another length than declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LengthMismatch {
    pub(crate) declared: u64,
    pub(crate) written: u64,
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
        };
        self.bodies.insert(id, body);
        id
    }

    /// How many bytes the body takes now.
    pub(crate) fn room(&self, id: BodyId) -> u64 {
        match self.bodies.get(&id).map(|body| &body.sink) {
            Some(Sink::Pending(_)) => (MAX_PENDING - self.pending) as u64,
            Some(Sink::Platform | Sink::Nowhere) | None => u64::MAX,
        }
    }

    /// Writes to the body, within its [`Bodies::room`].
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
            Sink::Platform => platform.send_body(bytes).map_err(WriteFailure::Refused)?,
            Sink::Nowhere => {}
        }
        body.written = written;
        Ok(())
    }

    /// The body's response is the answer: sends what waits and what will come.
    pub(crate) fn send(
        &mut self,
        id: BodyId,
        platform: &mut impl Platform,
    ) -> Result<(), SendError> {
        let Some(waiting) = self.redirect(id, Sink::Platform) else {
            return Ok(());
        };
        platform.send_body(&waiting)
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
    ) -> Result<(), LengthMismatch> {
        let Some(body) = self.bodies.get_mut(&id) else {
            return Ok(());
        };
        let absent = may_be_absent && body.written == 0;
        let mismatch = body
            .declared
            .filter(|declared| *declared != body.written && !absent)
            .map(|declared| LengthMismatch {
                declared,
                written: body.written,
            });
        body.end = match mismatch {
            None => End::Finished(trailers),
            Some(_) => End::Truncated,
        };
        self.forget_if_done(id);
        mismatch.map_or(Ok(()), Err)
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
