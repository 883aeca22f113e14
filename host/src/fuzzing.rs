//! The entry points for fuzz targets: the processing of a function's response, and of the note in
//! an export. They are not for other callers.

use faasw_abi::wire::ResponseHead;
use faasw_pool::{InvokeError, ReplyBody};
use http::Response;

use crate::message::{self, Body, ResponseContext};
use crate::node;

/// Returns the response that a client receives.
///
/// # Errors
/// Returns [`InvokeError::BadResponse`] if the response breaks a rule of HTTP.
pub fn response(
    request: &http::request::Parts,
    head: &ResponseHead,
    body: ReplyBody,
) -> Result<Response<Body>, InvokeError> {
    message::response(ResponseContext::of(request), head, body)
}

/// Parses the note of an export and serialises it again; `None` if the note is not valid.
#[must_use]
pub fn export_note(note: &[u8]) -> Option<Vec<u8>> {
    node::export_note(note)
}

/// Returns the note of an export of a function with this module and name.
#[must_use]
pub fn note_of(module: &[u8], name: &str) -> Vec<u8> {
    node::note_of(module, name).unwrap_or_default()
}
