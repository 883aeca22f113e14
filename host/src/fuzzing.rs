//! What fuzz targets reach of this crate: what becomes of a function's response, and what an
//! export says of itself. Not for anybody else.

use faasw_abi::wire::ResponseHead;
use faasw_pool::{InvokeError, ReplyBody};
use http::Response;

use crate::message::{self, Asked, Body};
use crate::node;

/// The response that a client gets.
///
/// # Errors
/// When it breaks a rule of HTTP.
pub fn response(
    request: &http::request::Parts,
    head: &ResponseHead,
    body: ReplyBody,
) -> Result<Response<Body>, InvokeError> {
    message::response(Asked::of(request), head, body)
}

/// What an export says of what is in it, in its own words again, if it makes sense.
#[must_use]
pub fn export_note(note: &[u8]) -> Option<Vec<u8>> {
    node::export_note(note)
}

/// What an export of a function of this module and name says.
#[must_use]
pub fn note_of(module: &[u8], name: &str) -> Vec<u8> {
    node::note_of(module, name).unwrap_or_default()
}
