//! Outbound calls of functions: the answers of servers, and the requests that they received.

use faasw_abi::outgoing::{Answer, Failure, FailureCode};
use faasw_abi::wire::ResponseHead;
use faasw_runtime::testing::{MemoryAnswer, MemoryCall};

use super::bytes;

/// Returns an answer with this status, these fields and this body, which arrives in pieces.
pub fn answer(status: u16, fields: &[(&str, &str)], pieces: &[&str]) -> MemoryAnswer {
    let fields = fields.iter();
    let headers = fields.map(|(name, value)| (bytes(name), bytes(value)));
    let head = ResponseHead {
        status,
        headers: headers.collect(),
    };
    MemoryAnswer {
        head: Answer::Response(head).encode(),
        pieces: pieces.iter().map(|piece| bytes(piece)).collect(),
        tail: Some(Vec::new()),
        ..MemoryAnswer::default()
    }
}

/// Returns the answer of a call that fails.
pub fn failed(code: FailureCode) -> MemoryAnswer {
    MemoryAnswer {
        head: Answer::Failed(Failure::new(code)).encode(),
        tail: Some(Vec::new()),
        ..MemoryAnswer::default()
    }
}

/// Returns method and URL of a request.
pub fn line(call: &MemoryCall) -> String {
    let part = String::from_utf8_lossy;
    let head = &call.head;
    format!(
        "{} {}://{}{}",
        part(&head.method),
        part(&head.scheme),
        part(&head.authority),
        part(&head.path_and_query)
    )
}
