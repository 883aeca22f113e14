//! `wasi:http/types`: the responses to outbound calls.

use faasw_abi::outgoing::Answer;
use wasmtime::Result;
use wasmtime::component::Resource;

use super::error::code_of;
use super::fields::Fields;
use super::request::{IncomingBody, Source};
use crate::invocation::CallId;
use crate::platform::Platform;
use crate::state::State;
use crate::wasip2::bindings::wasi::http::types::{self, ErrorCode};
use crate::wasip2::poll::Pollable;

/// The future response to a request that was sent.
#[derive(Debug)]
pub struct FutureIncomingResponse {
    call: CallId,
    taken: bool,
}

impl FutureIncomingResponse {
    pub(super) fn new(call: CallId) -> Self {
        Self { call, taken: false }
    }
}

/// A response to an outbound call.
#[derive(Debug)]
pub struct IncomingResponse {
    status: u16,
    headers: Fields,
    call: CallId,
    body_taken: bool,
}

impl<P: Platform> State<P> {
    /// Takes the head of an answer, which must be present.
    fn answered(&mut self, call: CallId) -> Result<IncomingResponse, ErrorCode> {
        let gone = || ErrorCode::InternalError(Some("the request is over".into()));
        let channel = self.invocation.calls.channel(call).ok_or_else(gone)?;
        match Answer::decode(&self.platform.head(channel)) {
            Ok(Answer::Response(head)) => Ok(IncomingResponse {
                status: head.status,
                headers: Fields::received(&head.headers),
                call,
                body_taken: false,
            }),
            Ok(Answer::Failed(failure)) => Err(code_of(failure)),
            Err(_) => Err(ErrorCode::InternalError(Some(
                "the node's answer is invalid".into(),
            ))),
        }
    }
}

impl<P: Platform> types::HostFutureIncomingResponse for State<P> {
    fn subscribe(
        &mut self,
        response: Resource<FutureIncomingResponse>,
    ) -> Result<Resource<Pollable>> {
        let call = self.table.get(&response)?.call;
        Ok(self.table.push(Pollable::Answer(call))?)
    }

    fn get(
        &mut self,
        response: Resource<FutureIncomingResponse>,
    ) -> Result<Option<Result<Result<Resource<IncomingResponse>, ErrorCode>, ()>>> {
        let future = self.table.get(&response)?;
        if future.taken {
            return Ok(Some(Err(())));
        }
        let call = future.call;
        let channel = self.invocation.calls.channel(call);
        if channel.is_some_and(|channel| !self.platform.has_head(channel)) {
            return Ok(None);
        }
        self.table.get_mut(&response)?.taken = true;
        match self.answered(call) {
            Ok(response) => Ok(Some(Ok(Ok(self.table.push(response)?)))),
            Err(code) => {
                self.invocation.abandon_call(call, &mut self.platform);
                Ok(Some(Ok(Err(code))))
            }
        }
    }

    fn drop(&mut self, response: Resource<FutureIncomingResponse>) -> Result<()> {
        let future = self.table.delete(response)?;
        if !future.taken {
            self.invocation
                .abandon_call(future.call, &mut self.platform);
        }
        Ok(())
    }
}

impl<P: Platform> types::HostIncomingResponse for State<P> {
    fn status(&mut self, response: Resource<IncomingResponse>) -> Result<u16> {
        Ok(self.table.get(&response)?.status)
    }

    fn headers(&mut self, response: Resource<IncomingResponse>) -> Result<Resource<Fields>> {
        let headers = self.table.get(&response)?.headers.clone();
        Ok(self.table.push(headers)?)
    }

    fn consume(
        &mut self,
        response: Resource<IncomingResponse>,
    ) -> Result<Result<Resource<IncomingBody>, ()>> {
        let response = self.table.get_mut(&response)?;
        if core::mem::replace(&mut response.body_taken, true) {
            return Ok(Err(()));
        }
        let body = IncomingBody::new(Source::Answer(response.call));
        Ok(Ok(self.table.push(body)?))
    }

    fn drop(&mut self, response: Resource<IncomingResponse>) -> Result<()> {
        let response = self.table.delete(response)?;
        if !response.body_taken {
            self.invocation
                .abandon_call(response.call, &mut self.platform);
        }
        Ok(())
    }
}
