//! `wasi:http/types`: the response, its body, and how it is set.

use faasw_abi::wire::ResponseHead;
use wasmtime::Result;
use wasmtime::component::Resource;

use super::error::{HttpFailure, spell};
use super::fields::Fields;
use crate::failure::Ended;
use crate::invocation::{Answer, BodyId, FinishFailure};
use crate::platform::Platform;
use crate::state::State;
use crate::wasip2::bindings::wasi::http::types::{self, ErrorCode};
use crate::wasip2::streams::OutputStream;

/// A response that is not sent yet.
#[derive(Debug)]
pub struct OutgoingResponse {
    status: u16,
    headers: Fields,
    body: Option<BodyId>,
}

impl OutgoingResponse {
    /// Returns the length that the body must have, if the response announces one. In a response
    /// without content (RFC 9110, section 6.4.1) the field does not describe the body: in a 304 it
    /// is the length of the content that the client has (section 8.6).
    fn expected_length(&self) -> Option<u64> {
        match self.status {
            204 | 205 | 304 => None,
            _ => self.headers.content_length(),
        }
    }
}

/// The right to set the response, once.
#[derive(Debug)]
pub struct ResponseOutparam;

/// The body of an outgoing message.
#[derive(Debug)]
pub struct OutgoingBody {
    pub(super) id: BodyId,
    pub(super) stream_taken: bool,
}

impl OutgoingBody {
    pub(super) fn new(id: BodyId) -> Self {
        Self {
            id,
            stream_taken: false,
        }
    }
}

impl<P: Platform> types::HostOutgoingResponse for State<P> {
    fn new(&mut self, headers: Resource<Fields>) -> Result<Resource<OutgoingResponse>> {
        let headers = self.table.delete(headers)?.frozen();
        Ok(self.table.push(OutgoingResponse {
            status: 200,
            headers,
            body: None,
        })?)
    }

    fn status_code(&mut self, response: Resource<OutgoingResponse>) -> Result<u16> {
        Ok(self.table.get(&response)?.status)
    }

    fn set_status_code(
        &mut self,
        response: Resource<OutgoingResponse>,
        status_code: u16,
    ) -> Result<Result<(), ()>> {
        let response = self.table.get_mut(&response)?;
        if !(100..1000).contains(&status_code) {
            return Ok(Err(()));
        }
        response.status = status_code;
        let expected = response.expected_length();
        if let Some(body) = response.body {
            self.invocation.bodies.expect(body, expected);
        }
        Ok(Ok(()))
    }

    fn headers(&mut self, response: Resource<OutgoingResponse>) -> Result<Resource<Fields>> {
        let headers = self.table.get(&response)?.headers.clone();
        Ok(self.table.push(headers)?)
    }

    fn body(
        &mut self,
        response: Resource<OutgoingResponse>,
    ) -> Result<Result<Resource<OutgoingBody>, ()>> {
        let response = self.table.get_mut(&response)?;
        if response.body.is_some() {
            return Ok(Err(()));
        }
        let id = self.invocation.bodies.create(response.expected_length());
        response.body = Some(id);
        Ok(Ok(self.table.push(OutgoingBody::new(id))?))
    }

    fn drop(&mut self, response: Resource<OutgoingResponse>) -> Result<()> {
        if let Some(body) = self.table.delete(response)?.body {
            self.invocation.bodies.abandon(body);
        }
        Ok(())
    }
}

impl<P: Platform> types::HostResponseOutparam for State<P> {
    fn send_informational(
        &mut self,
        _outparam: Resource<ResponseOutparam>,
        _status: u16,
        headers: Resource<Fields>,
    ) -> Result<(), HttpFailure> {
        self.table.delete(headers)?;
        Err(ErrorCode::InternalError(None).into())
    }

    fn set(
        &mut self,
        param: Resource<ResponseOutparam>,
        response: Result<Resource<OutgoingResponse>, ErrorCode>,
    ) -> Result<()> {
        self.table.delete(param)?;
        match response {
            Err(code) => self.invocation.answer = Some(Answer::Error(spell(&code))),
            Ok(response) => {
                let response = self.table.delete(response)?;
                let declared = response.expected_length();
                let OutgoingResponse {
                    status,
                    headers,
                    body,
                } = response;
                let head = ResponseHead {
                    status,
                    headers: headers.into_pairs(),
                };
                self.invocation
                    .answer(&head, declared, body, &mut self.platform)
                    .map_err(Ended::Refused)?;
            }
        }
        Ok(())
    }

    fn drop(&mut self, outparam: Resource<ResponseOutparam>) -> Result<()> {
        self.table.delete(outparam)?;
        Ok(())
    }
}

impl<P: Platform> types::HostOutgoingBody for State<P> {
    fn write(
        &mut self,
        body: Resource<OutgoingBody>,
    ) -> Result<Result<Resource<OutputStream>, ()>> {
        let outgoing = self.table.get_mut(&body)?;
        if core::mem::replace(&mut outgoing.stream_taken, true) {
            return Ok(Err(()));
        }
        let stream = OutputStream::Body(outgoing.id);
        Ok(Ok(self.table.push_child(stream, &body)?))
    }

    fn finish(
        &mut self,
        body: Resource<OutgoingBody>,
        trailers: Option<Resource<Fields>>,
    ) -> Result<(), HttpFailure> {
        let body = self.table.delete(body)?;
        let trailers = match trailers {
            Some(trailers) => self.table.delete(trailers)?.into_pairs(),
            None => alloc::vec::Vec::new(),
        };
        let is_head = self.invocation.is_head;
        let is_request = self.invocation.bodies.is_of_request(body.id);
        let finished =
            self.invocation
                .bodies
                .finish(body.id, trailers, is_head, &mut self.platform);
        finished.map_err(|failure| match failure {
            FinishFailure::Length { written } if is_request => {
                ErrorCode::HttpRequestBodySize(Some(written)).into()
            }
            FinishFailure::Length { written } => {
                ErrorCode::HttpResponseBodySize(Some(written)).into()
            }
            FinishFailure::Trailers { bytes } => {
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                ErrorCode::HttpRequestTrailerSectionSize(Some(bytes)).into()
            }
            FinishFailure::Refused(refusal) => HttpFailure::Trap(Ended::Refused(refusal).into()),
        })
    }

    fn drop(&mut self, body: Resource<OutgoingBody>) -> Result<()> {
        let body = self.table.delete(body)?;
        self.invocation.bodies.truncate(body.id, &mut self.platform);
        Ok(())
    }
}
