//! Why a request failed: errors of libraries and of the system as cases of wasi:http.

use std::error::Error;
use std::io;

use faasw_abi::outgoing::{Failure, FailureCode};

/// The first error of that type among an error and what caused it. An `io::Error` is looked into.
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

/// Of a handshake, or of reading and writing.
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

/// Of HTTP. `has_answer` tells whether a byte of the answer has come.
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
            // What hyper's reader of chunks says of what it cannot read.
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                match error.to_string().contains("trailer") {
                    true => Failure::new(FailureCode::HttpResponseTrailerSectionSize),
                    false => Failure::new(FailureCode::HttpProtocolError),
                }
            }
            io::ErrorKind::UnexpectedEof if has_answer => {
                Failure::new(FailureCode::HttpResponseIncomplete)
            }
            _ => of_io(error),
        };
    }
    Failure::new(match has_answer && error.is_incomplete_message() {
        true => FailureCode::HttpResponseIncomplete,
        false => FailureCode::ConnectionTerminated,
    })
}
