//! Connecting to one of several addresses.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use faasw_abi::outgoing::FailureCode;
use faasw_egress_policy::AllowPrivate;
use rustix::io::Errno;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::fair::{FairLimits, FairPool};

/// How long an address is waited for before the next is tried concurrently (RFC 8305, 5).
const NEXT_ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Most addresses that are tried. A name with more has enough of them.
pub const ADDRESSES_MAX: usize = 16;

/// Most addresses of one order that are tried at once.
const ATTEMPTS_MAX: usize = 3;

/// How long one address may take if others wait for their turn.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);

/// Sockets that connect at once: 576 for 128 functions. The process has 1024 descriptors, of which
/// workers take 128 and lookups 192. One function alone may have 31.
pub const SOCKETS: FairLimits = FairLimits {
    floor: 3,
    shared: 192,
    alpha: 6,
};

/// A function's share of the sockets.
#[derive(Clone)]
pub struct Sockets {
    pub pool: Rc<FairPool>,
    pub function: u64,
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectFailure {
    pub code: FailureCode,
    /// The response code of a name server.
    pub rcode: Option<u16>,
    /// The address that the policy refuses.
    pub refused: Option<IpAddr>,
}

impl From<FailureCode> for ConnectFailure {
    fn from(code: FailureCode) -> Self {
        Self {
            code,
            rcode: None,
            refused: None,
        }
    }
}

/// Connects to `addresses` in their order. Returns the first connection that succeeds.
///
/// # Errors
/// Returns the failure of the attempt that failed last.
pub async fn connect_to_any(
    addresses: &[IpAddr],
    port: u16,
    sockets: &Sockets,
    private: &Rc<AllowPrivate>,
) -> Result<TcpStream, ConnectFailure> {
    let mut rest = addresses.iter().take(ADDRESSES_MAX);
    // If no address has to wait for its turn, each may take the order's whole timeout.
    let time_limit = (rest.len() > ATTEMPTS_MAX).then_some(ATTEMPT_TIMEOUT);
    let mut attempts = JoinSet::new();
    let mut why = ConnectFailure::from(FailureCode::DestinationUnavailable);
    loop {
        if attempts.len() < ATTEMPTS_MAX {
            match rest.next() {
                Some(address) => {
                    let address = SocketAddr::new(*address, port);
                    let (sockets, private) = (sockets.clone(), private.clone());
                    attempts.spawn_local(attempt(address, time_limit, sockets, private));
                }
                None if attempts.is_empty() => return Err(why),
                None => {}
            }
        }
        // If no address is left to try, or `ATTEMPTS_MAX` attempts are under way, this waits for
        // the end of an attempt without a time limit.
        let goes_on = rest.len() > 0 && attempts.len() < ATTEMPTS_MAX;
        let answered = async {
            if goes_on {
                tokio::time::timeout(NEXT_ATTEMPT_DELAY, attempts.join_next()).await
            } else {
                Ok(attempts.join_next().await)
            }
        };
        match answered.await {
            Ok(Some(Ok(Ok(stream)))) => {
                // Data is sent at once: bodies come in pieces that fit.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Some(Ok(Err(unreached)))) => why = unreached,
            Ok(Some(Err(_)) | None) | Err(_) => {}
        }
    }
}

async fn attempt(
    address: SocketAddr,
    time_limit: Option<Duration>,
    sockets: Sockets,
    private: Rc<AllowPrivate>,
) -> Result<TcpStream, ConnectFailure> {
    let _socket = sockets.pool.acquire(sockets.function).await;
    let connecting = TcpStream::connect(address);
    let connected = match time_limit {
        None => connecting.await,
        Some(time_limit) => tokio::time::timeout(time_limit, connecting)
            .await
            .map_err(|_| FailureCode::ConnectionTimeout)?,
    };
    let stream = connected.map_err(|error| code_of(&error))?;
    let ends = || Ok((stream.local_addr()?.ip(), stream.peer_addr()?.ip()));
    let (ours, theirs) = ends().map_err(|error: io::Error| code_of(&error))?;
    if is_permitted(ours, theirs, &private) {
        Ok(stream)
    } else {
        Err(ConnectFailure {
            refused: Some(theirs),
            ..FailureCode::DestinationIpProhibited.into()
        })
    }
}

/// Returns whether a function may have a connection between these addresses. If a host connects to
/// itself, both addresses are the same. Even a public one is then no better than loopback: the
/// host's services listen there, and this node's own.
fn is_permitted(ours: IpAddr, theirs: IpAddr, private: &AllowPrivate) -> bool {
    ours.to_canonical() != theirs.to_canonical() || private.opens(theirs)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_hosts_own_addresses_are_reached_where_the_operator_opened_them_alone() {
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        let opened = AllowPrivate::new(vec![at("198.41.0.4").into()]);
        for (ours, theirs, expected) in [
            ("9.9.9.9", "1.1.1.1", true),
            ("9.9.9.9", "9.9.9.9", false),
            ("::ffff:9.9.9.9", "9.9.9.9", false),
            ("2620:fe::9", "2620:fe::9", false),
            ("2620:fe::9", "2620:fe::10", true),
            ("198.41.0.4", "198.41.0.4", true),
        ] {
            assert_eq!(
                is_permitted(at(ours), at(theirs), &opened),
                expected,
                "{theirs}"
            );
        }
    }
}
