//! Clients without any rights, against a real node with a neighbour function under measured load:
//! what they can send is bounded, and so is its cost.
//!
//! `arena`: the node, its resources, and what must hold. `neighbour`: the honest load. `wire`:
//! connections from many addresses, and HTTP/2 frames. The attacks: `unread_responses`, responses
//! that the client does not read; `unfinished_requests`, requests that do not end; `floods`, frames
//! that are cheap to send.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../e2e/mod.rs"]
mod e2e;

/// Lists attacks by their functions: all without TLS, and those of the second list with TLS, too.
macro_rules! attacks {
    ($($plain:ident),*; tls: $($tls:ident),*) => {
        &[
            $((stringify!($plain), || $plain(Wire::Plain)),)*
            $((concat!("tls::", stringify!($tls)), || $tls(Wire::Tls)),)*
        ]
    };
}

mod arena;
mod floods;
mod neighbour;
mod unfinished_requests;
mod unread_responses;
mod wire;

fn main() {
    let tests: Vec<common::trials::Test> = [
        unread_responses::TESTS,
        unfinished_requests::TESTS,
        floods::TESTS,
    ]
    .concat();
    e2e::main(&tests);
}
