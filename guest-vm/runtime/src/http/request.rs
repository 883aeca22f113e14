//! `wasi:http/types`: the incoming request, and incoming bodies.

use alloc::string::String;
use alloc::vec::Vec;
use core::mem::take;

use faasw_abi::channel::Channel;
use faasw_abi::wire::{Pair, RequestHead, decode_trailers};
use wasmtime::Result;
use wasmtime::component::Resource;

use super::error::call_trailers;
use super::fields::Fields;
use crate::invocation::{CallId, InvocationNumber};
use crate::platform::{Incoming, Platform};
use crate::state::State;
use crate::wasip2::bindings::wasi::http::types::{self, ErrorCode, Method, Scheme};
use crate::wasip2::poll::Pollable;
use crate::wasip2::streams::InputStream;

/// The request that the function answers.
#[derive(Debug)]
pub struct IncomingRequest {
    method: Method,
    scheme: Option<Scheme>,
    authority: Option<String>,
    path_with_query: Option<String>,
    headers: RequestFields,
    body_taken: bool,
    invocation: InvocationNumber,
}

/// The header fields of a request. They are converted when the function first asks for them.
#[derive(Debug)]
enum RequestFields {
    Received {
        fields: Vec<Pair>,
        /// The part of the path that led to the function.
        script_name: Vec<u8>,
    },
    Converted(Fields),
}

/// The field with the path at which the client reached the function. Only the node sets it: a
/// client's value does not arrive here.
const PREFIX: &[u8] = b"x-forwarded-prefix";

impl RequestFields {
    fn fields(&mut self) -> Fields {
        let converted = match self {
            Self::Converted(fields) => fields.clone(),
            Self::Received {
                fields,
                script_name,
            } => {
                if !script_name.is_empty() {
                    fields.push((PREFIX.to_vec(), take(script_name)));
                }
                Fields::received(fields)
            }
        };
        *self = Self::Converted(converted.clone());
        converted
    }
}

/// The message that an incoming body belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// The request that the function answers.
    Request(InvocationNumber),
    /// The response to an outbound call.
    Answer(CallId),
}

/// The body of an incoming message.
#[derive(Debug)]
pub struct IncomingBody {
    stream_taken: bool,
    source: Source,
}

impl IncomingBody {
    pub(super) fn new(source: Source) -> Self {
        Self {
            stream_taken: false,
            source,
        }
    }
}

/// The trailers behind an incoming body.
#[derive(Debug)]
pub struct FutureTrailers {
    taken: bool,
    source: Source,
}

fn text(bytes: Vec<u8>) -> Option<String> {
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

fn method(name: Vec<u8>) -> Method {
    match name.as_slice() {
        b"GET" => Method::Get,
        b"HEAD" => Method::Head,
        b"POST" => Method::Post,
        b"PUT" => Method::Put,
        b"DELETE" => Method::Delete,
        b"CONNECT" => Method::Connect,
        b"OPTIONS" => Method::Options,
        b"TRACE" => Method::Trace,
        b"PATCH" => Method::Patch,
        _ => Method::Other(text(name).unwrap_or_default()),
    }
}

fn scheme(name: Vec<u8>) -> Option<Scheme> {
    match name.as_slice() {
        b"http" => Some(Scheme::Http),
        b"https" => Some(Scheme::Https),
        _ => text(name).map(Scheme::Other),
    }
}

impl IncomingRequest {
    /// Returns the request of an invocation.
    pub(crate) fn new(invocation: InvocationNumber, head: RequestHead) -> Self {
        Self {
            method: method(head.method),
            scheme: scheme(head.scheme),
            authority: text(head.authority),
            path_with_query: text(head.path_and_query),
            headers: RequestFields::Received {
                fields: head.headers,
                script_name: head.script_name,
            },
            body_taken: false,
            invocation,
        }
    }
}

impl<P: Platform> State<P> {
    /// Returns the channel that a body arrives on, unless its message is over.
    fn channel_of(&self, source: Source) -> Option<Channel> {
        match source {
            Source::Request(invocation) => {
                (invocation == self.invocation.number).then_some(Channel::INVOCATION)
            }
            Source::Answer(call) => self.invocation.calls.channel(call),
        }
    }

    /// Abandons the outbound call of a body that the function can no longer read.
    fn release_source(&mut self, source: Source) {
        if let Source::Answer(call) = source {
            self.invocation.abandon_call(call, &mut self.platform);
        }
    }
}

impl<P: Platform> types::HostIncomingRequest for State<P> {
    fn method(&mut self, request: Resource<IncomingRequest>) -> Result<Method> {
        Ok(self.table.get(&request)?.method.clone())
    }

    fn path_with_query(&mut self, request: Resource<IncomingRequest>) -> Result<Option<String>> {
        Ok(self.table.get(&request)?.path_with_query.clone())
    }

    fn scheme(&mut self, request: Resource<IncomingRequest>) -> Result<Option<Scheme>> {
        Ok(self.table.get(&request)?.scheme.clone())
    }

    fn authority(&mut self, request: Resource<IncomingRequest>) -> Result<Option<String>> {
        Ok(self.table.get(&request)?.authority.clone())
    }

    fn headers(&mut self, request: Resource<IncomingRequest>) -> Result<Resource<Fields>> {
        let headers = self.table.get_mut(&request)?.headers.fields();
        Ok(self.table.push(headers)?)
    }

    fn consume(
        &mut self,
        request: Resource<IncomingRequest>,
    ) -> Result<Result<Resource<IncomingBody>, ()>> {
        let request = self.table.get_mut(&request)?;
        if core::mem::replace(&mut request.body_taken, true) {
            return Ok(Err(()));
        }
        let body = IncomingBody::new(Source::Request(request.invocation));
        Ok(Ok(self.table.push(body)?))
    }

    fn drop(&mut self, request: Resource<IncomingRequest>) -> Result<()> {
        self.table.delete(request)?;
        Ok(())
    }
}

impl<P: Platform> types::HostIncomingBody for State<P> {
    fn stream(
        &mut self,
        body: Resource<IncomingBody>,
    ) -> Result<Result<Resource<InputStream>, ()>> {
        let of = self.table.get_mut(&body)?;
        if core::mem::replace(&mut of.stream_taken, true) {
            return Ok(Err(()));
        }
        let stream = match of.source {
            Source::Request(invocation) => InputStream::RequestBody(invocation),
            Source::Answer(call) => InputStream::Answer(call),
        };
        Ok(Ok(self.table.push_child(stream, &body)?))
    }

    fn finish(&mut self, body: Resource<IncomingBody>) -> Result<Resource<FutureTrailers>> {
        let body = self.table.delete(body)?;
        let trailers = FutureTrailers {
            taken: false,
            source: body.source,
        };
        Ok(self.table.push(trailers)?)
    }

    fn drop(&mut self, body: Resource<IncomingBody>) -> Result<()> {
        let body = self.table.delete(body)?;
        self.release_source(body.source);
        Ok(())
    }
}

impl<P: Platform> types::HostFutureTrailers for State<P> {
    fn subscribe(&mut self, trailers: Resource<FutureTrailers>) -> Result<Resource<Pollable>> {
        let pollable = match self.table.get(&trailers)?.source {
            Source::Request(invocation) => Pollable::Trailers(invocation),
            Source::Answer(call) => Pollable::AnswerTrailers(call),
        };
        Ok(self.table.push(pollable)?)
    }

    fn get(
        &mut self,
        trailers: Resource<FutureTrailers>,
    ) -> Result<Option<Result<Result<Option<Resource<Fields>>, ErrorCode>, ()>>> {
        let asked = self.table.get(&trailers)?;
        if asked.taken {
            return Ok(Some(Err(())));
        }
        let source = asked.source;
        let Some(channel) = self.channel_of(source) else {
            self.table.get_mut(&trailers)?.taken = true;
            return Ok(Some(Ok(Ok(None))));
        };
        if self.discard_rest(channel) == Incoming::Pending {
            return Ok(None);
        }
        self.table.get_mut(&trailers)?.taken = true;
        let tail = self.platform.tail(channel);
        // Nothing else of the message follows.
        self.release_source(source);
        let received = match source {
            // The host encodes trailers correctly; invalid ones count as none.
            Source::Request(_) => decode_trailers(&tail).unwrap_or_default(),
            Source::Answer(_) => match call_trailers(&tail) {
                Ok(received) => received,
                Err(code) => return Ok(Some(Ok(Err(code)))),
            },
        };
        if received.is_empty() {
            return Ok(Some(Ok(Ok(None))));
        }
        let fields = self.table.push(Fields::received(&received))?;
        Ok(Some(Ok(Ok(Some(fields)))))
    }

    fn drop(&mut self, trailers: Resource<FutureTrailers>) -> Result<()> {
        let trailers = self.table.delete(trailers)?;
        self.release_source(trailers.source);
        Ok(())
    }
}
