//! What an upstream answers, as the function is told.

use faasw_abi::channel::{HEAD_MAX, TAIL_MAX};
use faasw_abi::outgoing::{Answer, Failure, FailureCode, Tail};
use faasw_abi::wire::{Pair, ResponseHead};
use http::response::Parts;
use http::{HeaderMap, StatusCode, header};

use super::request::{is_of_connection, nominated};

/// Most fields of an answer's head, and of its trailers.
pub const FIELDS_MAX: usize = 256;

/// The head of an answer, as bytes.
///
/// # Errors
/// When it is one that nobody should trust, or is too large.
pub fn head(parts: &Parts) -> Result<Vec<u8>, Failure> {
    // Nobody asked for another protocol.
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Failure::new(FailureCode::HttpUpgradeFailed));
    }
    let headers = &parts.headers;
    if headers.len() > FIELDS_MAX {
        return Err(Failure::new(FailureCode::HttpResponseHeaderSectionSize));
    }
    // Two readers may disagree where such an answer ends (RFC 9112, 6.3).
    let has_length = headers.contains_key(header::CONTENT_LENGTH);
    if has_length && headers.contains_key(header::TRANSFER_ENCODING) {
        return Err(Failure::new(FailureCode::HttpProtocolError));
    }
    let codings = headers.get_all(header::TRANSFER_ENCODING);
    // One that is not known here would be handed on as if it were the body.
    if codings
        .iter()
        .any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
    {
        let known = |coding: &http::HeaderValue| coding.to_str().ok().map(str::to_owned);
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
    let bytes = answer.encode();
    if bytes.len() as u64 <= HEAD_MAX {
        Ok(bytes)
    } else {
        Err(too_large(
            FailureCode::HttpResponseHeaderSectionSize,
            bytes.len(),
        ))
    }
}

/// The tail of an answer with these trailers, as bytes.
///
/// # Errors
/// When they are too large.
pub fn tail(trailers: &HeaderMap) -> Result<Vec<u8>, Failure> {
    if trailers.len() > FIELDS_MAX {
        return Err(Failure::new(FailureCode::HttpResponseTrailerSectionSize));
    }
    let bytes = Tail::Trailers(fields(trailers)).encode();
    if bytes.len() as u64 <= TAIL_MAX {
        Ok(bytes)
    } else {
        Err(too_large(
            FailureCode::HttpResponseTrailerSectionSize,
            bytes.len(),
        ))
    }
}

fn too_large(code: FailureCode, bytes: usize) -> Failure {
    Failure {
        number: Some(bytes as u64),
        ..Failure::new(code)
    }
}

/// Fields but for those of the connection.
fn fields(headers: &HeaderMap) -> Vec<Pair> {
    let nominated = nominated(headers);
    let is_kept = |name: &header::HeaderName| !is_of_connection(name) && !nominated.contains(name);
    let pair = |(name, value): (&header::HeaderName, &header::HeaderValue)| {
        (name.as_str().as_bytes().to_vec(), value.as_bytes().to_vec())
    };
    headers
        .iter()
        .filter(|(name, _)| is_kept(name))
        .map(pair)
        .collect()
}
