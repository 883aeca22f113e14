//! HTTP as the internet sends it, byte by byte over sockets, to a node whose functions do not run
//! in VMs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../common/mod.rs"]
mod common;

mod case;
mod connection;
mod damage;
mod differential;
mod framing;
mod heads;
mod http2;
mod responses;
mod slow;
mod targets;
