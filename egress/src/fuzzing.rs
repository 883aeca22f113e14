//! Entry points for fuzz targets only.

use std::sync::Arc;

use bytes::BytesMut;
use faasw_egress_policy::{Destination, Host, Name, Scheme};
use tokio::sync::mpsc;

use crate::client::Part;
use crate::client::table::{Calls, Entry, handle_frame};
use crate::frames::{Frame, FromWorker, WINDOW};

/// Feeds the node with frames of a worker for two calls under way, 1 and 2. Returns whether the
/// worker keeps the protocol and leaves no incomplete frame.
///
/// # Panics
/// Panics if a rule is broken: more data than a window, or parts out of order.
#[must_use]
pub fn node_handles_frames(input: &[u8]) -> bool {
    let Ok(name) = Name::parse("upstream.example") else {
        return false;
    };
    let destination = Destination {
        scheme: Scheme::Http,
        host: Host::Name(name),
        port: 80,
    };
    let mut calls = Calls::new();
    let mut received = Vec::new();
    for call in [1, 2] {
        let (parts, receiver) = mpsc::unbounded_channel();
        let entry = Entry::new(parts, Arc::default(), destination.clone(), 1);
        calls.insert(call, entry);
        received.push(receiver);
    }
    let mut rest = BytesMut::from(input);
    let mut is_sane = true;
    while let Ok(Some(frame)) = Frame::<FromWorker>::take(&mut rest) {
        if handle_frame(&mut calls, frame).is_err() {
            is_sane = false;
            break;
        }
    }
    for parts in &mut received {
        check(parts);
    }
    is_sane && rest.is_empty()
}

/// Reads an answer of a name server to a question for the IPv4 addresses of `www.a.example`, with
/// the id 7. Returns whether it is one.
///
/// # Panics
/// Panics if more is taken from the answer than its bounds allow.
#[cfg(feature = "program")]
#[must_use]
pub fn reads_name_answer(message: &[u8]) -> bool {
    use crate::connector::names::message::{LINKS_MAX, Question, RecordType, Reply, WireName};
    let Some(name) = WireName::new("www.a.example") else {
        return false;
    };
    let (id, kind) = (7, RecordType::A);
    match (Question { id, name, kind }).reply(message) {
        Some(Reply::Addresses(addresses, _)) => {
            assert!(
                !addresses.is_empty() && addresses.len() <= 16,
                "{addresses:?}"
            );
            true
        }
        Some(Reply::Alias { links, .. }) => {
            assert!((1..=LINKS_MAX).contains(&links), "{links} aliases");
            true
        }
        Some(Reply::Nothing(_) | Reply::Truncated) => true,
        Some(Reply::Failed(_)) | None => false,
    }
}

fn check(parts: &mut mpsc::UnboundedReceiver<Part>) {
    let (mut has_head, mut is_over, mut bytes) = (false, false, 0);
    while let Ok(part) = parts.try_recv() {
        assert!(!is_over, "{part:?} behind the end");
        match part {
            Part::Refused(_) => panic!("an address is refused by the node itself"),
            Part::Head(_) => {
                assert!(!has_head, "two heads");
                has_head = true;
            }
            Part::Data(data) => {
                assert!(has_head && !data.is_empty(), "data before a head, or none");
                bytes += data.len();
            }
            Part::Failed(_) => {
                assert!(!has_head, "a failure behind a head");
                is_over = true;
            }
            Part::End(_) => {
                assert!(has_head, "an end without a head");
                is_over = true;
            }
        }
    }
    assert!(bytes <= WINDOW, "{bytes} bytes, which nobody has taken");
}
