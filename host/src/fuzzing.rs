//! What fuzz targets reach of this crate: what becomes of a function's response. Not for
//! anybody else.

use faasw_abi::wire::ResponseHead;
use faasw_pool::{InvokeError, ReplyBody};
use http::Response;

use crate::message::{self, Asked, Body};

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
