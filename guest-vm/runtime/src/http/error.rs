//! `wasi:http` error codes: how they travel, and how they are told.

use alloc::format;
use alloc::string::String;

use wasmtime::component::{Resource, ResourceTableError};
use wasmtime::{Error, Result};

use super::fields::HeaderFailure;
use crate::platform::Platform;
use crate::state::State;
use crate::wasip2::bindings::wasi::http::types::{self, ErrorCode, HeaderError};
use crate::wasip2::streams::IoError;

/// Why an operation on a message failed.
pub enum HttpFailure {
    /// The function is told.
    Code(ErrorCode),
    /// The function broke the rules.
    Trap(Error),
}

impl From<ErrorCode> for HttpFailure {
    fn from(code: ErrorCode) -> Self {
        Self::Code(code)
    }
}

impl From<Error> for HttpFailure {
    fn from(error: Error) -> Self {
        Self::Trap(error)
    }
}

impl From<ResourceTableError> for HttpFailure {
    fn from(error: ResourceTableError) -> Self {
        Self::Trap(error.into())
    }
}

impl<P: Platform> types::Host for State<P> {
    fn http_error_code(&mut self, error: Resource<IoError>) -> Result<Option<ErrorCode>> {
        Ok(self.table.get(&error)?.code.clone())
    }

    fn convert_error_code(&mut self, failure: HttpFailure) -> Result<ErrorCode> {
        match failure {
            HttpFailure::Code(code) => Ok(code),
            HttpFailure::Trap(error) => Err(error),
        }
    }

    fn convert_header_error(&mut self, failure: HeaderFailure) -> Result<HeaderError> {
        match failure {
            HeaderFailure::Told(error) => Ok(error),
            HeaderFailure::Trap(error) => Err(error),
        }
    }
}

/// The code as WIT spells it, in lower case: `http-protocol-error`; with the
/// function's own words where it gave some.
pub(super) fn spell(code: &ErrorCode) -> String {
    if let ErrorCode::InternalError(Some(text)) = code {
        return format!("internal-error: {text}");
    }
    // The generated names are the WIT names in camel case.
    let debug = format!("{code:?}");
    let name = debug.strip_prefix("ErrorCode::").unwrap_or(&debug);
    let (name, payload) = name.split_at(name.find('(').unwrap_or(name.len()));
    let mut spelt = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !spelt.is_empty() {
            spelt.push('-');
        }
        spelt.push(letter.to_ascii_lowercase());
    }
    spelt.push_str(payload);
    spelt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_by_their_wit_names() {
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
