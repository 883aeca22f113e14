//! Commands as functions: CGI 1.1 (RFC 3875).
//!
//! [`variables`] turns a request into environment variables; [`Output`] turns the command's output
//! into a response.

mod output;
mod variables;

pub(crate) use output::Output;
pub(crate) use variables::variables;
