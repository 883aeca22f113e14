//! Converts a response of an upstream for the function.

use bytes::Bytes;
use faasw_abi::channel::{HEAD_MAX, TAIL_MAX};
use faasw_abi::outgoing::{Answer, Failure, FailureCode, Tail};
use faasw_abi::wire::{Pair, ResponseHead};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::request::{is_of_connection, nominated};

/// Most fields in the head of a response, and most in its trailers.
pub const FIELDS_MAX: usize = 256;

/// The next part of a response body.
pub enum BodyFrame {
    Data(Bytes),
    /// The last part.
    Trailers(HeaderMap),
}

/// Encodes the head of a response.
///
/// # Errors
/// Fails with `HttpUpgradeFailed` if the status is 101, `HttpResponseHeaderSectionSize` if the head
/// is too large, `HttpProtocolError` if it has both a length and a transfer coding, and
/// `HttpResponseTransferCoding` if a transfer coding is unknown.
pub fn head(parts: &Parts) -> Result<Vec<u8>, Failure> {
    // No request asks for another protocol.
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Failure::new(FailureCode::HttpUpgradeFailed));
    }
    let headers = &parts.headers;
    if headers.len() > FIELDS_MAX {
        return Err(Failure::new(FailureCode::HttpResponseHeaderSectionSize));
    }
    // Two readers may disagree on where such a response ends (RFC 9112, 6.3).
    let has_length = headers.contains_key(header::CONTENT_LENGTH);
    if has_length && headers.contains_key(header::TRANSFER_ENCODING) {
        return Err(Failure::new(FailureCode::HttpProtocolError));
    }
    let codings = headers.get_all(header::TRANSFER_ENCODING);
    // The content of an unknown coding would be passed on as if it were the body.
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    if !codings.iter().all(is_chunked) {
        let known = |coding: &HeaderValue| coding.to_str().ok().map(str::to_owned);
        let text = codings.iter().find_map(known).unwrap_or_default();
        return Err(Failure::with_text(
            FailureCode::HttpResponseTransferCoding,
            &text,
        ));
    }
    let answer = Answer::Response(ResponseHead {
        status: parts.status.as_u16(),
        headers: fields(headers),
    });
    let code = FailureCode::HttpResponseHeaderSectionSize;
    bounded(answer.encode(), HEAD_MAX, code)
}

/// Encodes the tail of a response with these trailers.
///
/// # Errors
/// Fails with `HttpResponseTrailerSectionSize` if the trailers are too large.
pub fn tail(trailers: &HeaderMap) -> Result<Vec<u8>, Failure> {
    if trailers.len() > FIELDS_MAX {
        return Err(Failure::new(FailureCode::HttpResponseTrailerSectionSize));
    }
    let code = FailureCode::HttpResponseTrailerSectionSize;
    bounded(Tail::Trailers(fields(trailers)).encode(), TAIL_MAX, code)
}

/// Returns `bytes`, or a failure with this code if they are more than `most`.
fn bounded(bytes: Vec<u8>, most: u64, code: FailureCode) -> Result<Vec<u8>, Failure> {
    let size = bytes.len() as u64;
    if size <= most {
        return Ok(bytes);
    }
    Err(Failure {
        number: Some(size),
        ..Failure::new(code)
    })
}

/// Returns all fields except those of the connection.
fn fields(headers: &HeaderMap) -> Vec<Pair> {
    let nominated = nominated(headers);
    let is_kept = |name: &HeaderName| !is_of_connection(name) && !nominated.contains(name);
    let pair = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.as_str().as_bytes().to_vec(), value.as_bytes().to_vec())
    };
    headers
        .iter()
        .filter(|(name, _)| is_kept(name))
        .map(pair)
        .collect()
}
