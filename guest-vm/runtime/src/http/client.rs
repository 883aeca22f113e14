//! `wasi:http/outgoing-handler` and its types: outbound calls of a function. They are plain data
//! until they are sent, each on a channel. If no channel is open, all calls are denied.

use alloc::format;
use alloc::string::String;

use faasw_abi::outgoing::{OutgoingHead, Timeouts};
use wasmtime::Result;
use wasmtime::component::Resource;

use super::answer::FutureIncomingResponse;
use super::error::HttpFailure;
use super::fields::Fields;
use super::response::OutgoingBody;
use crate::draws::Kind;
use crate::headers;
use crate::invocation::{BodyId, CallError, CallId, Calls};
use crate::platform::Platform;
use crate::state::State;
use crate::wasip2::bindings::wasi::http::outgoing_handler;
use crate::wasip2::bindings::wasi::http::types::{self, ErrorCode, Method, Scheme};

/// An outbound request that is not sent yet.
#[derive(Debug)]
pub struct OutgoingRequest {
    method: Method,
    path_with_query: Option<String>,
    scheme: Option<Scheme>,
    authority: Option<String>,
    headers: Fields,
    body: Option<BodyId>,
}

/// Timeouts of a request, in nanoseconds.
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

/// Checks RFC 3986, section 3.1.
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

/// Returns whether RFC 3986 allows the byte in some part of a URI.
fn is_uri_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&byte)
}

fn is_authority(authority: &str) -> bool {
    !authority.is_empty()
        && authority
            .bytes()
            .all(|byte| is_uri_byte(byte) && !b"/?#".contains(&byte))
}

/// Clients put more into paths than RFC 3986 allows. Like other implementations, this accepts all
/// visible bytes except the one that begins a fragment.
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
        let bodies = &mut self.invocation.bodies;
        let id = if Calls::are_open(&self.platform) {
            bodies.create_request(declared)
        } else {
            bodies.create_unsent(declared)
        };
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
            self.invocation.bodies.abandon(body);
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
        let request = self.table.delete(request)?;
        let options = match options {
            Some(options) => self.table.delete(options)?,
            None => RequestOptions::default(),
        };
        // Before a request to the function, outbound calls are not answered, because the answer
        // would become part of a seed.
        self.draws
            .record(Kind::Call, "wasi:http/outgoing-handler#handle", 0);
        let body = request.body;
        let sent = self.send(request, &options);
        if let (Err(_), Some(body)) = (&sent, body) {
            self.invocation.bodies.abandon(body);
        }
        Ok(self.table.push(FutureIncomingResponse::new(sent?))?)
    }
}

impl<P: Platform> State<P> {
    /// Sends a request, if it is valid.
    fn send(
        &mut self,
        request: OutgoingRequest,
        options: &RequestOptions,
    ) -> Result<CallId, ErrorCode> {
        if !Calls::are_open(&self.platform) {
            self.log_missing_grant(&request);
            return Err(ErrorCode::HttpRequestDenied);
        }
        let body = request.body;
        if body.is_some_and(|body| self.invocation.bodies.has_lost(body)) {
            let why = "the body of the request was written before the function had any request to \
                 answer, and was not kept";
            return Err(ErrorCode::InternalError(Some(why.into())));
        }
        let length = request.headers.content_length();
        if body.is_none() && length.is_some_and(|length| length > 0) {
            return Err(ErrorCode::HttpRequestBodySize(Some(0)));
        }
        let head = request.head(options)?;
        let sent = self.invocation.call(&head, body, &mut self.platform);
        sent.map_err(|why| match why {
            CallError::Closed => ErrorCode::HttpRequestDenied,
            CallError::TooMany => ErrorCode::ConnectionLimitReached,
            CallError::HeadTooLarge { bytes } => {
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                ErrorCode::HttpRequestHeaderSectionSize(Some(bytes))
            }
        })
    }
}

impl<P: Platform> State<P> {
    /// Logs which grant a denied request lacks. The node logs this itself if the function has any
    /// grants; otherwise it opens no channels, and never sees the request.
    fn log_missing_grant(&mut self, request: &OutgoingRequest) {
        if !self.draws.are_closed() {
            // No grant allows calls before a request.
            return;
        }
        let scheme = match &request.scheme {
            Some(Scheme::Http) => "http",
            Some(Scheme::Https) | None => "https",
            Some(Scheme::Other(scheme)) => scheme,
        };
        let line = match &request.authority {
            Some(authority) => format!(
                "a request to {scheme}://{authority} was denied: no grant allows it (deploy with \
                 --allow-outbound {scheme}://{authority})\n"
            ),
            None => {
                "a request without a host was denied: no grant allows any outbound call\n".into()
            }
        };
        self.write_stderr(line.as_bytes());
    }
}

impl OutgoingRequest {
    /// Returns the head to send. The default scheme is `https`, and the default path is the root.
    /// Requests that no server can answer are refused here.
    fn head(self, options: &RequestOptions) -> Result<OutgoingHead, ErrorCode> {
        let scheme = match self.scheme {
            Some(Scheme::Http) => "http",
            Some(Scheme::Https) | None => "https",
            Some(Scheme::Other(_)) => return Err(ErrorCode::HttpProtocolError),
        };
        let method = match &self.method {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
            Method::Trace => "TRACE",
            Method::Patch => "PATCH",
            Method::Other(name) if name != "CONNECT" => name,
            // CONNECT is no request for a resource, and has no path.
            Method::Connect | Method::Other(_) => {
                return Err(ErrorCode::HttpRequestMethodInvalid);
            }
        };
        // The node decides whether a request without an authority can be sent.
        let authority = self.authority.unwrap_or_default();
        let path = self.path_with_query.unwrap_or_default();
        let path = match path.bytes().next() {
            None => "/".into(),
            Some(b'/') => path,
            Some(b'?') => format!("/{path}"),
            Some(_) => return Err(ErrorCode::HttpRequestUriInvalid),
        };
        Ok(OutgoingHead {
            method: method.into(),
            scheme: scheme.into(),
            authority: authority.into_bytes(),
            path_and_query: path.into_bytes(),
            headers: self.headers.into_pairs(),
            timeouts: Timeouts {
                connect: on_the_wire(options.connect),
                first_byte: on_the_wire(options.first_byte),
                between_bytes: on_the_wire(options.between_bytes),
            },
        })
    }
}

/// Returns a timeout as it is sent, where 0 means none: a timeout of zero becomes 1 ns.
fn on_the_wire(timeout: Option<u64>) -> u64 {
    timeout.map_or(0, |nanoseconds| nanoseconds.max(1))
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
