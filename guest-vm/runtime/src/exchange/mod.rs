//! One request and its answer, from the call of the handler to its end.

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

/// What the function answered.
#[derive(Debug)]
pub(crate) enum Answer {
    /// An error code, spelt.
    Error(String),
    /// A response whose head is sent; its body may still be written.
    Response {
        declared: Option<u64>,
        body: Option<BodyId>,
    },
    /// A response that cannot be sent, and why.
    Bad(String),
}

/// One request and its answer.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    pub(crate) bodies: Bodies,
    /// Requests of the function's own.
    pub(crate) calls: Calls,
    pub(crate) answer: Option<Answer>,
    /// The request's method is HEAD: its response declares a body it has not.
    pub(crate) is_head: bool,
    /// Bytes of header fields that the function made so far.
    pub(crate) field_bytes: usize,
    /// Which one it is: what belongs to another is over.
    pub(crate) number: ExchangeNumber,
}

/// Tells what belongs to one exchange from what was left by those before. A function has
/// several where requests warm it up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeNumber(u32);

impl Exchange {
    /// A request was received. Bodies that the function made before stay: it
    /// may still hold them.
    pub(crate) fn begin(&mut self, request: &RequestHead) {
        self.number = ExchangeNumber(self.number.0.wrapping_add(1));
        self.is_head = request.method == b"HEAD";
        self.answer = None;
        self.field_bytes = 0;
    }

    /// The function set its response, whose head says that the body has `declared` bytes, if
    /// it does: sends the head, and what there is of the body.
    ///
    /// # Errors
    /// When the platform does not take it.
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

    /// The handler returned: says whether its response is whole. A body that it
    /// left open, neither finished nor dropped, ends here; StarlingMonkey leaves
    /// the answer to an exception like that, and Wasmtime takes it so.
    ///
    /// # Errors
    /// When there is no response, or not a whole one.
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

    /// Whether the body is whole; else what it lacks.
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

/// Whether a response can be begun; else why not.
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
