//! A request and its answer, from the call of the handler to its end.

mod bodies;
mod calls;

pub(crate) use bodies::{BodyId, FinishFailure, WriteFailure};
pub(crate) use calls::{CallId, Calls, NoCall};

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use faasw_abi::channel::Channel;
use faasw_abi::outcome::Outcome;
use faasw_abi::wire::{RequestHead, ResponseHead};

use self::bodies::{Bodies, End, Written};
use crate::failure::Failure;
use crate::platform::{Platform, SendError};

/// The answer of the function.
#[derive(Debug)]
pub(crate) enum Answer {
    /// An error code, as text.
    Error(String),
    /// A response whose head is sent; its body may still be written.
    Response {
        declared: Option<u64>,
        body: Option<BodyId>,
    },
    /// A response that cannot be sent, and the reason.
    Bad(String),
}

/// A request and its answer.
#[derive(Debug, Default)]
pub(crate) struct Invocation {
    pub(crate) bodies: Bodies,
    /// Outbound calls of the function.
    pub(crate) calls: Calls,
    pub(crate) answer: Option<Answer>,
    /// Whether the request's method is HEAD: the response then declares a body that it does not
    /// have.
    pub(crate) is_head: bool,
    /// Bytes of header fields that the function has made so far.
    pub(crate) field_bytes: usize,
    /// Number of this invocation: resources of earlier ones are over.
    pub(crate) number: InvocationNumber,
}

/// Distinguishes resources of one invocation from those of earlier ones. A function has several
/// invocations if it is warmed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InvocationNumber(u32);

impl Invocation {
    /// Begins an invocation. Bodies that the function made before stay, because it may still hold
    /// them.
    pub(crate) fn begin(&mut self, request: &RequestHead) {
        self.number = InvocationNumber(self.number.0.wrapping_add(1));
        self.is_head = request.method == b"HEAD";
        self.answer = None;
        self.field_bytes = 0;
    }

    /// Sends the head of the function's response, which declares `declared` bytes of body if it is
    /// set, and the present part of the body.
    ///
    /// # Errors
    /// Returns the [`SendError`] of a platform that refuses a part.
    pub(crate) fn answer(
        &mut self,
        head: &ResponseHead,
        declared: Option<u64>,
        body: Option<BodyId>,
        platform: &mut impl Platform,
    ) -> Result<(), SendError> {
        if let Err(report) = possible(head.status, declared, body, self.is_head) {
            if let Some(body) = body {
                self.bodies.abandon(body);
            }
            self.answer = Some(Answer::Bad(report));
            return Ok(());
        }
        self.answer = Some(Answer::Response { declared, body });
        platform.send_head(Channel::INVOCATION, &head.encode(), false)?;
        match body {
            Some(body) => self.bodies.send(body, self.is_head, platform),
            None => platform.finish(Channel::INVOCATION, &[]),
        }
    }

    /// Concludes the invocation after the handler returned. A body that is still open, neither
    /// finished nor dropped, is finished here: StarlingMonkey leaves the answer to an exception
    /// like that, and Wasmtime accepts it.
    ///
    /// # Errors
    /// Returns a [`Failure`] if there is no response, or an incomplete one.
    pub(crate) fn conclude(&mut self, platform: &mut impl Platform) -> Result<(), Failure> {
        match self.answer.take() {
            None => Err(Failure::new(
                Outcome::NoResponse,
                "the function returned without setting a response",
            )),
            Some(Answer::Error(code)) => Err(Failure::new(
                Outcome::FunctionError,
                format!("the function answered with the error {code}"),
            )),
            Some(Answer::Bad(report)) => Err(Failure::new(Outcome::BadResponse, report)),
            Some(Answer::Response { declared, body }) => {
                if let Some(body) = body.filter(|body| self.bodies.is_open(*body)) {
                    let closed = self.bodies.finish(body, Vec::new(), self.is_head, platform);
                    if let Err(FinishFailure::Refused(refusal)) = closed {
                        return Err(Failure::refused(refusal));
                    }
                }
                self.finished(body, declared)
                    .map_err(|report| Failure::new(Outcome::BadResponse, report))
            }
        }
    }

    /// Checks that the body is complete; otherwise returns what is missing.
    fn finished(&mut self, body: Option<BodyId>, declared: Option<u64>) -> Result<(), String> {
        match body.and_then(|body| self.bodies.take(body)) {
            None
            | Some(Written {
                end: End::Finished(_),
                ..
            }) => Ok(()),
            Some(Written { bytes, .. }) => {
                let of = declared.map_or_else(String::new, |declared| format!(" of {declared}"));
                Err(format!(
                    "the function did not finish its response's body; \
                     {bytes}{of} bytes of it were written"
                ))
            }
        }
    }
}

/// Checks that a response can be begun; otherwise returns the reason.
fn possible(
    status: u16,
    declared: Option<u64>,
    body: Option<BodyId>,
    may_be_absent: bool,
) -> Result<(), String> {
    if status < 200 {
        return Err(format!(
            "the function's response has status {status}, which cannot end a request"
        ));
    }
    match declared {
        Some(declared) if declared > 0 && body.is_none() && !may_be_absent => Err(format!(
            "the function's response has a content-length of {declared} and no body"
        )),
        _ => Ok(()),
    }
}
