//! `wasi:http` error codes: their transport and their text.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use faasw_abi::outgoing::{Failure, FailureCode, Tail};
use faasw_abi::wire::Pair;
use wasmtime::Result;
use wasmtime::component::Resource;

use super::fields::HeaderFailure;
use crate::failure::HostFailure;
use crate::platform::Platform;
use crate::state::State;
use crate::wasip2::bindings::wasi::http::types::{
    self, DnsErrorPayload, ErrorCode, FieldSizePayload, HeaderError, TlsAlertReceivedPayload,
};
use crate::wasip2::streams::IoError;

/// The reason why an operation on a message failed.
pub type HttpFailure = HostFailure<ErrorCode>;

impl From<ErrorCode> for HttpFailure {
    fn from(code: ErrorCode) -> Self {
        Self::Code(code)
    }
}

impl<P: Platform> types::Host for State<P> {
    fn http_error_code(&mut self, error: Resource<IoError>) -> Result<Option<ErrorCode>> {
        Ok(self.table.get(&error)?.code.clone())
    }

    fn convert_error_code(&mut self, failure: HttpFailure) -> Result<ErrorCode> {
        failure.into_code()
    }

    fn convert_header_error(&mut self, failure: HeaderFailure) -> Result<HeaderError> {
        failure.into_code()
    }
}

/// Returns the code as WIT spells it, in lower case: `http-protocol-error`; with the function's own
/// text if it provided one.
pub(crate) fn spell(code: &ErrorCode) -> String {
    if let ErrorCode::InternalError(Some(text)) = code {
        return format!("internal-error: {text}");
    }
    // The generated names are the WIT names in camel case.
    let debug = format!("{code:?}");
    let name = debug.strip_prefix("ErrorCode::").unwrap_or(&debug);
    let (name, payload) = name.split_at(name.find('(').unwrap_or(name.len()));
    let mut spelled = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !spelled.is_empty() {
            spelled.push('-');
        }
        spelled.push(letter.to_ascii_lowercase());
    }
    spelled.push_str(payload);
    spelled
}

/// Returns the reason why the body of an answer is incomplete, from the tail behind it, if it is.
pub(crate) fn call_failure(tail: &[u8]) -> Option<ErrorCode> {
    call_trailers(tail).err()
}

/// Returns the trailers behind the body of an answer.
///
/// # Errors
/// Returns the reason why the body is incomplete.
pub(super) fn call_trailers(tail: &[u8]) -> Result<Vec<Pair>, ErrorCode> {
    match Tail::decode(tail) {
        Ok(Tail::Trailers(fields)) => Ok(fields),
        Ok(Tail::Failed(failure)) => Err(code_of(failure)),
        Err(_) => Err(ErrorCode::InternalError(Some(
            "the node's answer is incomplete".into(),
        ))),
    }
}

/// Converts the reason of a failed request to the error code for the function.
pub(super) fn code_of(failure: Failure) -> ErrorCode {
    let Failure { code, text, number } = failure;
    let text = text.map(|text| String::from_utf8_lossy(&text).into_owned());
    let short = number.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    let field = |field_name: Option<String>| FieldSizePayload {
        field_name,
        field_size: short,
    };
    match code {
        FailureCode::DnsTimeout => ErrorCode::DnsTimeout,
        FailureCode::DnsError => ErrorCode::DnsError(DnsErrorPayload {
            rcode: text,
            info_code: number.and_then(|number| number.try_into().ok()),
        }),
        FailureCode::DestinationNotFound => ErrorCode::DestinationNotFound,
        FailureCode::DestinationUnavailable => ErrorCode::DestinationUnavailable,
        FailureCode::DestinationIpProhibited => ErrorCode::DestinationIpProhibited,
        FailureCode::DestinationIpUnroutable => ErrorCode::DestinationIpUnroutable,
        FailureCode::ConnectionRefused => ErrorCode::ConnectionRefused,
        FailureCode::ConnectionTerminated => ErrorCode::ConnectionTerminated,
        FailureCode::ConnectionTimeout => ErrorCode::ConnectionTimeout,
        FailureCode::ConnectionReadTimeout => ErrorCode::ConnectionReadTimeout,
        FailureCode::ConnectionWriteTimeout => ErrorCode::ConnectionWriteTimeout,
        FailureCode::ConnectionLimitReached => ErrorCode::ConnectionLimitReached,
        FailureCode::TlsProtocolError => ErrorCode::TlsProtocolError,
        FailureCode::TlsCertificateError => ErrorCode::TlsCertificateError,
        FailureCode::TlsAlertReceived => ErrorCode::TlsAlertReceived(TlsAlertReceivedPayload {
            alert_id: number.and_then(|number| number.try_into().ok()),
            alert_message: text,
        }),
        FailureCode::HttpRequestDenied => ErrorCode::HttpRequestDenied,
        FailureCode::HttpRequestLengthRequired => ErrorCode::HttpRequestLengthRequired,
        FailureCode::HttpRequestBodySize => ErrorCode::HttpRequestBodySize(number),
        FailureCode::HttpRequestMethodInvalid => ErrorCode::HttpRequestMethodInvalid,
        FailureCode::HttpRequestUriInvalid => ErrorCode::HttpRequestUriInvalid,
        FailureCode::HttpRequestUriTooLong => ErrorCode::HttpRequestUriTooLong,
        FailureCode::HttpRequestHeaderSectionSize => ErrorCode::HttpRequestHeaderSectionSize(short),
        FailureCode::HttpRequestHeaderSize => {
            let is_known = text.is_some() || short.is_some();
            ErrorCode::HttpRequestHeaderSize(is_known.then(|| field(text)))
        }
        FailureCode::HttpRequestTrailerSectionSize => {
            ErrorCode::HttpRequestTrailerSectionSize(short)
        }
        FailureCode::HttpRequestTrailerSize => ErrorCode::HttpRequestTrailerSize(field(text)),
        FailureCode::HttpResponseIncomplete => ErrorCode::HttpResponseIncomplete,
        FailureCode::HttpResponseHeaderSectionSize => {
            ErrorCode::HttpResponseHeaderSectionSize(short)
        }
        FailureCode::HttpResponseHeaderSize => ErrorCode::HttpResponseHeaderSize(field(text)),
        FailureCode::HttpResponseBodySize => ErrorCode::HttpResponseBodySize(number),
        FailureCode::HttpResponseTrailerSectionSize => {
            ErrorCode::HttpResponseTrailerSectionSize(short)
        }
        FailureCode::HttpResponseTrailerSize => ErrorCode::HttpResponseTrailerSize(field(text)),
        FailureCode::HttpResponseTransferCoding => ErrorCode::HttpResponseTransferCoding(text),
        FailureCode::HttpResponseContentCoding => ErrorCode::HttpResponseContentCoding(text),
        FailureCode::HttpResponseTimeout => ErrorCode::HttpResponseTimeout,
        FailureCode::HttpUpgradeFailed => ErrorCode::HttpUpgradeFailed,
        FailureCode::HttpProtocolError => ErrorCode::HttpProtocolError,
        FailureCode::LoopDetected => ErrorCode::LoopDetected,
        FailureCode::ConfigurationError => ErrorCode::ConfigurationError,
        FailureCode::InternalError => ErrorCode::InternalError(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_print_their_wit_names() {
        let told = [
            (ErrorCode::HttpProtocolError, "http-protocol-error"),
            (ErrorCode::DnsTimeout, "dns-timeout"),
            (ErrorCode::LoopDetected, "loop-detected"),
            (ErrorCode::InternalError(None), "internal-error(None)"),
            (
                ErrorCode::InternalError(Some("out of cheese".into())),
                "internal-error: out of cheese",
            ),
            (
                ErrorCode::HttpRequestBodySize(Some(3)),
                "http-request-body-size(Some(3))",
            ),
        ];
        for (code, name) in told {
            assert_eq!(spell(&code), name);
        }
    }
}
