//! One request and its answer, from the call of the handler to its end.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use faasw_abi::outcome::Outcome;
use faasw_abi::wire::{Pair, RequestHead, ResponseHead};

use super::bodies::{Bodies, BodyId, End, Written};
use super::fields::Fields;
use crate::failure::Failure;
use crate::platform::Platform;

/// What the function answered.
#[derive(Debug)]
pub(super) enum Answer {
    /// An error code, spelt.
    Error(String),
    /// A response; its body may still be written.
    Response {
        status: u16,
        headers: Fields,
        body: Option<BodyId>,
    },
}

/// One request and its answer.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    pub(crate) bodies: Bodies,
    pub(super) answer: Option<Answer>,
    /// The request's method is HEAD: its response declares a body it has not.
    pub(super) is_head: bool,
    /// Bytes of header fields that the function made so far.
    pub(super) field_bytes: usize,
}

impl Exchange {
    /// A request was received. Bodies that the function made before stay: it
    /// may still hold them.
    pub(crate) fn begin(&mut self, request: &RequestHead) {
        self.is_head = request.method == b"HEAD";
        self.answer = None;
        self.field_bytes = 0;
    }

    /// The handler returned: sends the head of its response.
    ///
    /// # Errors
    /// When there is no response, or none that could be passed on.
    pub(crate) fn conclude(&mut self, platform: &mut impl Platform) -> Result<(), Failure> {
        let (status, headers, body) = match self.answer.take() {
            None => {
                return Err(Failure::new(
                    Outcome::NoResponse,
                    "the function returned without setting a response",
                ));
            }
            Some(Answer::Error(code)) => {
                return Err(Failure::new(
                    Outcome::FunctionError,
                    format!("the function answered with the error {code}"),
                ));
            }
            Some(Answer::Response {
                status,
                headers,
                body,
            }) => (status, headers, body),
        };
        let bad = |report: String| Failure::new(Outcome::BadResponse, report);
        if status < 200 {
            return Err(bad(format!(
                "the function's response has status {status}, which cannot end a request"
            )));
        }
        let declared = headers.content_length();
        let (written, trailers) = self.finished(body, declared).map_err(bad)?;
        let absent = written == 0 && (self.is_head || status == 304);
        if let Some(declared) = declared.filter(|declared| *declared != written && !absent) {
            return Err(bad(format!(
                "the function's response has a content-length of {declared} \
                 and a body of {written} bytes"
            )));
        }
        let head = ResponseHead {
            status,
            headers: headers.into_pairs(),
            trailers,
        };
        platform.send_head(&head).map_err(Failure::refused)
    }

    /// Length and trailers of the body, if it is whole; else what it lacks.
    fn finished(
        &mut self,
        body: Option<BodyId>,
        declared: Option<u64>,
    ) -> Result<(u64, Vec<Pair>), String> {
        match body.and_then(|body| self.bodies.take(body)) {
            None => Ok((0, Vec::new())),
            Some(Written {
                end: End::Finished(trailers),
                bytes,
            }) => Ok((bytes, trailers)),
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
