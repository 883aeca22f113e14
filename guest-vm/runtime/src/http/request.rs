//! `wasi:http/types`: the incoming request and its body.

use alloc::string::String;
use alloc::vec::Vec;

use faasw_abi::channel::Channel;
use faasw_abi::wire::{RequestHead, decode_trailers};
use wasmtime::Result;
use wasmtime::component::Resource;

use super::fields::Fields;
use crate::exchange::ExchangeNumber;
use crate::platform::{Incoming, Platform};
use crate::state::State;
use crate::wasip2::bindings::wasi::http::types::{self, ErrorCode, Method, Scheme};
use crate::wasip2::poll::Pollable;
use crate::wasip2::streams::InputStream;

/// The request that the function is to answer.
#[derive(Debug)]
pub struct IncomingRequest {
    method: Method,
    scheme: Option<Scheme>,
    authority: Option<String>,
    path_with_query: Option<String>,
    headers: Fields,
    body_taken: bool,
    exchange: ExchangeNumber,
}

/// The request's body.
#[derive(Debug)]
pub struct IncomingBody {
    stream_taken: bool,
    exchange: ExchangeNumber,
}

/// The trailers behind the request's body.
#[derive(Debug)]
pub struct FutureTrailers {
    taken: bool,
    exchange: ExchangeNumber,
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
    /// The request of an exchange.
    pub(crate) fn new(exchange: ExchangeNumber, head: RequestHead) -> Self {
        Self {
            method: method(head.method),
            scheme: scheme(head.scheme),
            authority: text(head.authority),
            path_with_query: text(head.path_and_query),
            headers: Fields::received(&head.headers),
            body_taken: false,
            exchange,
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
        let headers = self.table.get(&request)?.headers.clone();
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
        let body = IncomingBody {
            stream_taken: false,
            exchange: request.exchange,
        };
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
        let stream = InputStream::RequestBody(of.exchange);
        Ok(Ok(self.table.push_child(stream, &body)?))
    }

    fn finish(&mut self, body: Resource<IncomingBody>) -> Result<Resource<FutureTrailers>> {
        let body = self.table.delete(body)?;
        let trailers = FutureTrailers {
            taken: false,
            exchange: body.exchange,
        };
        Ok(self.table.push(trailers)?)
    }

    fn drop(&mut self, body: Resource<IncomingBody>) -> Result<()> {
        self.table.delete(body)?;
        Ok(())
    }
}

impl<P: Platform> types::HostFutureTrailers for State<P> {
    fn subscribe(&mut self, trailers: Resource<FutureTrailers>) -> Result<Resource<Pollable>> {
        let exchange = self.table.get(&trailers)?.exchange;
        Ok(self.table.push(Pollable::Trailers(exchange))?)
    }

    fn get(
        &mut self,
        trailers: Resource<FutureTrailers>,
    ) -> Result<Option<Result<Result<Option<Resource<Fields>>, ErrorCode>, ()>>> {
        let asked = self.table.get_mut(&trailers)?;
        if asked.taken {
            return Ok(Some(Err(())));
        }
        if asked.exchange != self.exchange.number {
            asked.taken = true;
            return Ok(Some(Ok(Ok(None))));
        }
        if self.rest_of_request() == Incoming::Pending {
            return Ok(None);
        }
        // The host spells them right; if not, there are none.
        let received =
            decode_trailers(&self.platform.tail(Channel::INVOCATION)).unwrap_or_default();
        self.table.get_mut(&trailers)?.taken = true;
        if received.is_empty() {
            return Ok(Some(Ok(Ok(None))));
        }
        let fields = self.table.push(Fields::received(&received))?;
        Ok(Some(Ok(Ok(Some(fields)))))
    }

    fn drop(&mut self, trailers: Resource<FutureTrailers>) -> Result<()> {
        self.table.delete(trailers)?;
        Ok(())
    }
}
