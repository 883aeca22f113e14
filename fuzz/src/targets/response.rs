//! A function's response, from the bytes of its head and trailers to the response for a client.
//!
//! Input: how the request was made, the length of the head, head, trailers.

use bytes::Bytes;
use faasw::fuzzing::response;
use faasw_abi::wire::{ResponseHead, decode_trailers};
use faasw_pool::{InvokeError, ReplyBody};
use http::{Method, Request, Version, header};

use crate::Target;
use crate::input::Input;

/// A field of no bytes takes eight bytes in the mailbox, and an entry in three maps here.
pub const TARGET: Target = Target {
    name: "response",
    read,
    memory: 256 << 10,
    per_byte: 128,
    executions: 50_000,
};

/// Fields that only the gateway may set. `trailer` may be announced.
const FRAMING: [&str; 6] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

const BODY: &[u8] = b"body";

fn request(how: u8) -> http::request::Parts {
    let mut request = Request::new(());
    if how & 1 != 0 {
        *request.method_mut() = Method::HEAD;
    }
    if how & 2 != 0 {
        *request.version_mut() = Version::HTTP_2;
    }
    if how & 4 != 0 {
        let trailers = header::HeaderValue::from_static("trailers");
        request.headers_mut().insert(header::TE, trailers);
    }
    request.into_parts().0
}

fn read(bytes: &[u8]) -> bool {
    let mut input = Input::new(bytes);
    let parts = request(input.byte());
    let length = usize::from(input.short());
    let (head, trailers) = (input.take(length), input.rest());
    let (Ok(head), Ok(trailers)) = (ResponseHead::decode(head), decode_trailers(trailers)) else {
        return false;
    };
    let body = ReplyBody::Whole {
        bytes: Bytes::from_static(BODY),
        trailers,
    };
    let made = match response(&parts, &head, body) {
        Ok(made) => made,
        Err(InvokeError::BadResponse { report }) => {
            assert!(report.len() < 8192, "a report of {} bytes", report.len());
            return false;
        }
        Err(other) => panic!("{other}"),
    };
    assert!((200..600).contains(&made.status().as_u16()));
    for name in FRAMING {
        assert!(!made.headers().contains_key(name), "{name} was passed on");
    }
    let lengths: Vec<_> = made
        .headers()
        .get_all(header::CONTENT_LENGTH)
        .iter()
        .collect();
    // Only the answer to HEAD may announce a body that is not sent.
    assert!(lengths.len() <= usize::from(parts.method == Method::HEAD));
    // All fields are from the function's head, except for the announcement of trailers.
    for (name, value) in made.headers() {
        let is_of_head = head.headers.iter().any(|(its_name, its_value)| {
            its_name.eq_ignore_ascii_case(name.as_str().as_bytes()) && its_value == value.as_bytes()
        });
        let is_length = *name == header::CONTENT_LENGTH;
        assert!(
            is_of_head || is_length || *name == header::TRAILER,
            "{name}"
        );
        assert!(
            !value
                .as_bytes()
                .iter()
                .any(|byte| matches!(byte, b'\r' | b'\n' | 0))
        );
    }
    true
}
