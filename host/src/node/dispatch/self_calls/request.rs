//! Converts a function's outbound request to a request that arrives at the node.

use faasw_abi::outgoing::{Failure, FailureCode, OutgoingHead, Timeouts};
use faasw_egress_policy::{Destination, NodeTarget};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header,
    uri::{PathAndQuery, Scheme},
};

use super::body::{SelfCallBody, SelfCallBodySender, body_channel};
use crate::message::{Arrival, FunctionTarget, TARGET_BYTES, take_content_length};

/// A request to a function of the node, with what belongs to it.
#[derive(Debug)]
pub(crate) struct SelfCallRequest {
    /// The name of the called function, which need not exist.
    pub(crate) name: String,
    /// The URI that the called function sees.
    pub(crate) uri: Uri,
    /// The request with its original URI.
    pub(crate) request: Request<SelfCallBody>,
    /// The sender of the request's body, if the request has one.
    pub(crate) sending: Option<SelfCallBodySender>,
    pub(crate) timeouts: Timeouts,
}

/// Parses the request of a function. All of its data is untrusted.
///
/// # Errors
/// Returns a failure if the destination, the method, the URI, the header fields or the body's
/// length are invalid, and `HttpRequestDenied` if the destination is not this node.
pub(crate) fn parse_request(
    head: &OutgoingHead,
    is_whole: bool,
) -> Result<SelfCallRequest, Failure> {
    let fail = |code| move || Failure::new(code);
    let destination = Destination::of_request(&head.scheme, &head.authority).ok();
    let destination = destination.ok_or_else(fail(FailureCode::HttpRequestUriInvalid))?;
    let method = Method::from_bytes(&head.method).ok();
    let method = method.filter(|method| *method != Method::CONNECT);
    let method = method.ok_or_else(fail(FailureCode::HttpRequestMethodInvalid))?;
    if head.path_and_query.len() > TARGET_BYTES {
        return Err(Failure::new(FailureCode::HttpRequestUriTooLong));
    }
    let target = match head.path_and_query.as_slice() {
        path @ [b'/', ..] => PathAndQuery::try_from(path).ok(),
        _ => None,
    };
    let target = target.ok_or_else(fail(FailureCode::HttpRequestUriInvalid))?;
    let asked_for = Uri::from(target);
    let (name, uri, has_host) = match destination.own() {
        Some(NodeTarget::Function(name)) => (name.to_owned(), asked_for.clone(), true),
        Some(NodeTarget::ByPath) => match FunctionTarget::of(&asked_for) {
            Some(FunctionTarget { name, uri, .. }) => (name, uri, false),
            None => (String::new(), asked_for.clone(), false),
        },
        None => return Err(Failure::new(FailureCode::HttpRequestDenied)),
    };
    let mut headers = fields(head)?;
    let length = take_content_length(&mut headers)
        .map_err(|_| Failure::new(FailureCode::HttpRequestBodySize))?;
    let (sending, body) = body_channel(length, is_whole)?;
    for name in [header::EXPECT, header::TRANSFER_ENCODING] {
        headers.remove(name);
    }
    let host = HeaderValue::from_str(&destination.authority());
    let host = host.map_err(|_| Failure::new(FailureCode::HttpRequestUriInvalid))?;
    headers.insert(header::HOST, host);
    // The guest can receive trailers.
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = asked_for;
    *request.headers_mut() = headers;
    request.extensions_mut().insert(Arrival {
        scheme: Scheme::HTTP,
        has_host,
    });
    Ok(SelfCallRequest {
        name,
        uri,
        request,
        sending,
        timeouts: head.timeouts,
    })
}

fn fields(head: &OutgoingHead) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    for (name, value) in &head.headers {
        let name = HeaderName::from_bytes(name).ok();
        let value = HeaderValue::from_bytes(value).ok();
        let Some((name, value)) = name.zip(value) else {
            return Err(Failure::new(FailureCode::HttpProtocolError));
        };
        if headers.try_append(name, value).is_err() {
            return Err(Failure::new(FailureCode::HttpRequestHeaderSectionSize));
        }
    }
    Ok(headers)
}
