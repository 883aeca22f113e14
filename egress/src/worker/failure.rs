//! Failures of a call: maps errors of libraries and of the system to the error codes of wasi:http.

use std::error::Error;
use std::io;

use faasw_abi::outgoing::{Failure, FailureCode};
use h2::Reason;

/// Why a request has no response.
pub struct SendError {
    pub failure: Failure,
    /// Whether the request has not been sent at all, or the peer reports that it has not processed
    /// it.
    pub is_unsent: bool,
    /// Whether any of the response has arrived, or a reset in its place.
    pub has_answer: bool,
}

/// Finds the first error of this type among an error and its causes, including the contents of an
/// `io::Error`.
fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let within = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        next = match within {
            Some(within) => Some(within as &(dyn Error + 'static)),
            None => error.source(),
        };
    }
    None
}

/// Maps an error of a TLS handshake, or of reading and writing.
pub fn of_io(error: &io::Error) -> Failure {
    if let Some(error) = find::<rustls::Error>(error) {
        return of_tls(error);
    }
    Failure::new(match error.kind() {
        io::ErrorKind::TimedOut => FailureCode::ConnectionTimeout,
        _ => FailureCode::ConnectionTerminated,
    })
}

fn of_tls(error: &rustls::Error) -> Failure {
    match error {
        rustls::Error::AlertReceived(alert) => Failure {
            number: Some(u8::from(*alert).into()),
            ..Failure::with_text(FailureCode::TlsAlertReceived, &format!("{alert:?}"))
        },
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => {
            Failure::new(FailureCode::TlsCertificateError)
        }
        _ => Failure::new(FailureCode::TlsProtocolError),
    }
}

/// Maps an error of HTTP/1.1. `has_answer` is true if a byte of the response has arrived.
pub fn of_http(error: &hyper::Error, has_answer: bool) -> Failure {
    if let Some(error) = find::<rustls::Error>(error) {
        return of_tls(error);
    }
    if error.is_parse_too_large() {
        return Failure::new(FailureCode::HttpResponseHeaderSectionSize);
    }
    if error.is_parse() {
        return Failure::new(FailureCode::HttpProtocolError);
    }
    if let Some(error) = find::<io::Error>(error) {
        return match error.kind() {
            // Errors of hyper's reader of chunks.
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                if error.to_string().contains("trailer") {
                    Failure::new(FailureCode::HttpResponseTrailerSectionSize)
                } else {
                    Failure::new(FailureCode::HttpProtocolError)
                }
            }
            io::ErrorKind::UnexpectedEof if has_answer => {
                Failure::new(FailureCode::HttpResponseIncomplete)
            }
            _ => of_io(error),
        };
    }
    Failure::new(if has_answer && error.is_incomplete_message() {
        FailureCode::HttpResponseIncomplete
    } else {
        FailureCode::ConnectionTerminated
    })
}

/// Maps an error of HTTP/2, of a stream or of its connection. `has_head` is true if the response
/// head has arrived.
pub fn of_http2(error: &h2::Error, has_head: bool) -> Failure {
    let incomplete = if has_head {
        FailureCode::HttpResponseIncomplete
    } else {
        FailureCode::ConnectionTerminated
    };
    if let Some(error) = error.get_io() {
        return match error.kind() {
            // Errors of the library for streams whose connection has ended.
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => Failure::new(incomplete),
            _ => of_io(error),
        };
    }
    let reason = error.reason();
    if error.is_library() {
        // Detected by the library: the peer violates the protocol, or exceeds a limit.
        let is_too_much = reason == Some(Reason::ENHANCE_YOUR_CALM);
        // The library also sends this text to the peer. Nothing else in the error shows which limit
        // was exceeded.
        let text = error.to_string();
        let is_of_fields = text.contains("header") || text.contains("continuation");
        return Failure::new(match (is_too_much && is_of_fields, has_head) {
            (true, false) => FailureCode::HttpResponseHeaderSectionSize,
            (true, true) => FailureCode::HttpResponseTrailerSectionSize,
            (false, _) => FailureCode::HttpProtocolError,
        });
    }
    Failure::new(match reason {
        Some(
            Reason::PROTOCOL_ERROR
            | Reason::FLOW_CONTROL_ERROR
            | Reason::FRAME_SIZE_ERROR
            | Reason::COMPRESSION_ERROR
            | Reason::HTTP_1_1_REQUIRED
            | Reason::INADEQUATE_SECURITY,
        ) => FailureCode::HttpProtocolError,
        _ => incomplete,
    })
}

/// Returns whether the peer reports that it has not processed the request (RFC 9113, 8.7): it
/// refused the stream, or went away before it. Streams that it still answers get no such error.
pub fn is_unprocessed(error: &h2::Error) -> bool {
    let is_refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (error.is_go_away() || is_refused)
}
