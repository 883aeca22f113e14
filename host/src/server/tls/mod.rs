//! TLS of the gateway's listener: certificates, and when they are read again.
//!
//! A handshake is part of its connection: it happens when the connection is
//! first read, in that one's own task, counts as it does and has the time limit
//! of a request's head. What rustls refuses (garbage, downgrades, renegotiation,
//! early data, hellos beyond 64 KiB) ends with the alert that TLS has for it.

mod certificates;
mod config;
mod error;
mod files;
mod follow;
mod listener;
mod pair;
mod stream;

pub(crate) use self::config::Tls;
pub use self::error::TlsError;
pub(super) use self::listener::TlsListener;
pub(crate) use self::pair::Pair;
