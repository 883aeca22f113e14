//! TLS of the gateway's listener: certificates, and when they are read again.
//!
//! A handshake is part of its connection. It happens in the connection's task when the connection
//! is first read, counts as a connection, and has the timeout of a request's head. What rustls
//! rejects (garbage, downgrades, renegotiation, early data, hellos beyond 64 KiB) ends with TLS's
//! alert for it.

mod certificates;
mod config;
mod error;
mod listener;
mod stream;

pub(crate) use self::certificates::CertificatePaths;
pub(crate) use self::config::Tls;
pub use self::error::TlsError;
pub(super) use self::listener::TlsListener;
