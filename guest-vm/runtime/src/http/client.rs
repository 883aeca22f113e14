//! `wasi:http/outgoing-handler` and what it takes: requests that a function
//! makes. They are plain data, since sending one is always denied.

use alloc::string::String;

use wasmtime::Result;
use wasmtime::component::Resource;

use super::error::HttpFailure;
use super::fields::Fields;
use super::request::IncomingBody;
use super::response::OutgoingBody;
use crate::exchange::BodyId;
use crate::headers;
use crate::platform::Platform;
use crate::state::State;
use crate::wasip2::bindings::wasi::http::outgoing_handler;
use crate::wasip2::bindings::wasi::http::types::{
    self, ErrorCode, FutureIncomingResponse, IncomingResponse, Method, Scheme,
};
use crate::wasip2::poll::Pollable;

/// A request in the making.
#[derive(Debug)]
pub struct OutgoingRequest {
    method: Method,
    path_with_query: Option<String>,
    scheme: Option<Scheme>,
    authority: Option<String>,
    headers: Fields,
    body: Option<BodyId>,
}

/// Time limits of a request, in nanoseconds.
#[derive(Debug, Default)]
pub struct RequestOptions {
    connect: Option<u64>,
    first_byte: Option<u64>,
    between_bytes: Option<u64>,
}

fn is_method(method: &Method) -> bool {
    match method {
        Method::Other(name) => headers::is_name(name.as_bytes()),
        _ => true,
    }
}

/// RFC 3986, section 3.1.
fn is_scheme(scheme: &Scheme) -> bool {
    match scheme {
        Scheme::Other(name) => {
            name.starts_with(|first: char| first.is_ascii_alphabetic())
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        }
        Scheme::Http | Scheme::Https => true,
    }
}

/// Bytes that RFC 3986 lets stand in some part of a URI.
fn is_uri_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&byte)
}

fn is_authority(authority: &str) -> bool {
    !authority.is_empty()
        && authority
            .bytes()
            .all(|byte| is_uri_byte(byte) && !b"/?#".contains(&byte))
}

/// Clients put more into paths than RFC 3986 allows; like others, this lets
/// all visible bytes pass but the one that begins a fragment.
fn is_path_with_query(path: &str) -> bool {
    path.bytes()
        .all(|byte| byte > b' ' && byte != 0x7f && byte != b'#')
}

impl<P: Platform> types::HostOutgoingRequest for State<P> {
    fn new(&mut self, headers: Resource<Fields>) -> Result<Resource<OutgoingRequest>> {
        let headers = self.table.delete(headers)?.frozen();
        Ok(self.table.push(OutgoingRequest {
            method: Method::Get,
            path_with_query: None,
            scheme: None,
            authority: None,
            headers,
            body: None,
        })?)
    }

    fn body(
        &mut self,
        request: Resource<OutgoingRequest>,
    ) -> Result<Result<Resource<OutgoingBody>, ()>> {
        let request = self.table.get_mut(&request)?;
        if request.body.is_some() {
            return Ok(Err(()));
        }
        let declared = request.headers.content_length();
        let id = self.exchange.bodies.create_unsent(declared);
        request.body = Some(id);
        Ok(Ok(self.table.push(OutgoingBody::new(id))?))
    }

    fn method(&mut self, request: Resource<OutgoingRequest>) -> Result<Method> {
        Ok(self.table.get(&request)?.method.clone())
    }

    fn set_method(
        &mut self,
        request: Resource<OutgoingRequest>,
        method: Method,
    ) -> Result<Result<(), ()>> {
        let request = self.table.get_mut(&request)?;
        if !is_method(&method) {
            return Ok(Err(()));
        }
        request.method = method;
        Ok(Ok(()))
    }

    fn path_with_query(&mut self, request: Resource<OutgoingRequest>) -> Result<Option<String>> {
        Ok(self.table.get(&request)?.path_with_query.clone())
    }

    fn set_path_with_query(
        &mut self,
        request: Resource<OutgoingRequest>,
        path_with_query: Option<String>,
    ) -> Result<Result<(), ()>> {
        let request = self.table.get_mut(&request)?;
        if !path_with_query.as_deref().is_none_or(is_path_with_query) {
            return Ok(Err(()));
        }
        request.path_with_query = path_with_query;
        Ok(Ok(()))
    }

    fn scheme(&mut self, request: Resource<OutgoingRequest>) -> Result<Option<Scheme>> {
        Ok(self.table.get(&request)?.scheme.clone())
    }

    fn set_scheme(
        &mut self,
        request: Resource<OutgoingRequest>,
        scheme: Option<Scheme>,
    ) -> Result<Result<(), ()>> {
        let request = self.table.get_mut(&request)?;
        if !scheme.as_ref().is_none_or(is_scheme) {
            return Ok(Err(()));
        }
        request.scheme = scheme;
        Ok(Ok(()))
    }

    fn authority(&mut self, request: Resource<OutgoingRequest>) -> Result<Option<String>> {
        Ok(self.table.get(&request)?.authority.clone())
    }

    fn set_authority(
        &mut self,
        request: Resource<OutgoingRequest>,
        authority: Option<String>,
    ) -> Result<Result<(), ()>> {
        let request = self.table.get_mut(&request)?;
        if !authority.as_deref().is_none_or(is_authority) {
            return Ok(Err(()));
        }
        request.authority = authority;
        Ok(Ok(()))
    }

    fn headers(&mut self, request: Resource<OutgoingRequest>) -> Result<Resource<Fields>> {
        let headers = self.table.get(&request)?.headers.clone();
        Ok(self.table.push(headers)?)
    }

    fn drop(&mut self, request: Resource<OutgoingRequest>) -> Result<()> {
        if let Some(body) = self.table.delete(request)?.body {
            self.exchange.bodies.abandon(body);
        }
        Ok(())
    }
}

impl<P: Platform> outgoing_handler::Host for State<P> {
    fn handle(
        &mut self,
        request: Resource<OutgoingRequest>,
        options: Option<Resource<RequestOptions>>,
    ) -> Result<Resource<FutureIncomingResponse>, HttpFailure> {
        types::HostOutgoingRequest::drop(self, request)?;
        if let Some(options) = options {
            self.table.delete(options)?;
        }
        Err(ErrorCode::HttpRequestDenied.into())
    }
}

impl<P: Platform> types::HostRequestOptions for State<P> {
    fn new(&mut self) -> Result<Resource<RequestOptions>> {
        Ok(self.table.push(RequestOptions::default())?)
    }

    fn connect_timeout(&mut self, options: Resource<RequestOptions>) -> Result<Option<u64>> {
        Ok(self.table.get(&options)?.connect)
    }

    fn set_connect_timeout(
        &mut self,
        options: Resource<RequestOptions>,
        duration: Option<u64>,
    ) -> Result<Result<(), ()>> {
        self.table.get_mut(&options)?.connect = duration;
        Ok(Ok(()))
    }

    fn first_byte_timeout(&mut self, options: Resource<RequestOptions>) -> Result<Option<u64>> {
        Ok(self.table.get(&options)?.first_byte)
    }

    fn set_first_byte_timeout(
        &mut self,
        options: Resource<RequestOptions>,
        duration: Option<u64>,
    ) -> Result<Result<(), ()>> {
        self.table.get_mut(&options)?.first_byte = duration;
        Ok(Ok(()))
    }

    fn between_bytes_timeout(&mut self, options: Resource<RequestOptions>) -> Result<Option<u64>> {
        Ok(self.table.get(&options)?.between_bytes)
    }

    fn set_between_bytes_timeout(
        &mut self,
        options: Resource<RequestOptions>,
        duration: Option<u64>,
    ) -> Result<Result<(), ()>> {
        self.table.get_mut(&options)?.between_bytes = duration;
        Ok(Ok(()))
    }

    fn drop(&mut self, options: Resource<RequestOptions>) -> Result<()> {
        self.table.delete(options)?;
        Ok(())
    }
}

/// Responses to requests that are never sent: the types have no values, so
/// the table cannot hold one and looking one up is the trap it should be.
impl<P: Platform> types::HostIncomingResponse for State<P> {
    fn status(&mut self, response: Resource<IncomingResponse>) -> Result<u16> {
        match *self.table.get(&response)? {}
    }

    fn headers(&mut self, response: Resource<IncomingResponse>) -> Result<Resource<Fields>> {
        match *self.table.get(&response)? {}
    }

    fn consume(
        &mut self,
        response: Resource<IncomingResponse>,
    ) -> Result<Result<Resource<IncomingBody>, ()>> {
        match *self.table.get(&response)? {}
    }

    fn drop(&mut self, response: Resource<IncomingResponse>) -> Result<()> {
        match self.table.delete(response)? {}
    }
}

impl<P: Platform> types::HostFutureIncomingResponse for State<P> {
    fn subscribe(
        &mut self,
        response: Resource<FutureIncomingResponse>,
    ) -> Result<Resource<Pollable>> {
        match *self.table.get(&response)? {}
    }

    fn get(
        &mut self,
        response: Resource<FutureIncomingResponse>,
    ) -> Result<Option<Result<Result<Resource<IncomingResponse>, ErrorCode>, ()>>> {
        match *self.table.get(&response)? {}
    }

    fn drop(&mut self, response: Resource<FutureIncomingResponse>) -> Result<()> {
        match self.table.delete(response)? {}
    }
}
