//! Connecting to one of several addresses.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use faasw_abi::outgoing::FailureCode;
use rustix::io::Errno;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// How long an address is waited for before the next is tried beside it (RFC 8305, 5).
const NEXT: Duration = Duration::from_millis(250);

/// Most addresses that are tried: a name with more has enough of them.
const ADDRESSES_MAX: usize = 16;

/// Connects to one of `addresses`, the first that answers, in their order.
///
/// # Errors
/// Why the last of them was not to be had.
pub async fn any_of(addresses: &[IpAddr], port: u16) -> Result<TcpStream, FailureCode> {
    let mut rest = addresses.iter().take(ADDRESSES_MAX);
    let mut attempts = JoinSet::new();
    let mut why = FailureCode::DestinationUnavailable;
    loop {
        match rest.next() {
            Some(address) => {
                attempts.spawn_local(TcpStream::connect(SocketAddr::new(*address, port)));
            }
            None if attempts.is_empty() => return Err(why),
            None => {}
        }
        // With none left to try, whoever answers is waited for.
        let is_last = rest.len() == 0;
        let answered = async {
            match is_last {
                true => Ok(attempts.join_next().await),
                false => tokio::time::timeout(NEXT, attempts.join_next()).await,
            }
        };
        match answered.await {
            Ok(Some(Ok(Ok(stream)))) => {
                // What is sent is sent at once: bodies come in pieces that fit.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Some(Ok(Err(error)))) => why = code_of(&error),
            Ok(Some(Err(_)) | None) | Err(_) => {}
        }
    }
}

fn code_of(error: &io::Error) -> FailureCode {
    match Errno::from_io_error(error) {
        Some(Errno::CONNREFUSED) => FailureCode::ConnectionRefused,
        Some(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT) => {
            FailureCode::DestinationIpUnroutable
        }
        Some(Errno::TIMEDOUT) => FailureCode::ConnectionTimeout,
        Some(Errno::CONNRESET) => FailureCode::ConnectionTerminated,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
            FailureCode::ConnectionLimitReached
        }
        _ => FailureCode::DestinationUnavailable,
    }
}
