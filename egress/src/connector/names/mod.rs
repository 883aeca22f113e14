//! Addresses of names: from `/etc/hosts`, from a cache, or from name servers.
//!
//! Lookups of one function change nothing for another: each function has its own share of lookups,
//! its own cache, and its own record of which server is silent about which name. Functions share
//! one judgement, that a server answers nothing at all, and no name that they choose decides it.

mod cache;
mod exchange;
mod function;
mod hosts;
pub(crate) mod message;
mod servers;

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::{Rc, Weak};
use std::time::Duration;

use faasw_abi::outgoing::FailureCode;
use faasw_egress_policy::Host;

use self::cache::CacheLimits;
use self::exchange::{LookupFailure, Network, Sockets};
pub use self::function::Function;
use self::hosts::Hosts;
use self::message::{NO_ERROR, NO_NAME, WireName};
use self::servers::Servers;
use super::dial::{ADDRESSES_MAX, ConnectFailure};
use super::fair::{FairLimits, FairPool};

/// Lookups at once. Each holds one socket and at most 64 KiB of an answer, so that 128 functions
/// that all wait for long answers take 192 descriptors and 12 MiB. One function alone may have 14.
const LOOKUPS: FairLimits = FairLimits {
    floor: 1,
    shared: 64,
    alpha: 4,
};

/// Names in the caches: each takes about 700 bytes at most, all those of 128 functions 4 MiB. One
/// function alone may have 836.
const CACHED: FairLimits = FairLimits {
    floor: 16,
    shared: 4096,
    alpha: 4,
};

/// How long a lookup may take. If it ends before all of many silent servers were queried, the next
/// lookup begins with those that were not.
const TURN: Duration = Duration::from_secs(7);

/// How often a function's turn is halved while no server answers its lookups. The shortest turn is
/// 1.75 s: a working server answers in less, and a queue of dead names empties four times as fast.
const HALVINGS_MAX: u32 = 2;

/// Finds addresses.
pub struct Resolver<N = Sockets> {
    network: N,
    /// The current sources. A lookup keeps those with which it began.
    sources: RefCell<Rc<Sources>>,
    lookups: Rc<FairPool>,
    cache: CacheLimits,
    functions: RefCell<Vec<Weak<Function>>>,
}

/// The sources of addresses.
struct Sources {
    hosts: Hosts,
    servers: Servers,
}

impl Resolver {
    /// Returns a resolver without any names and servers. It caches addresses for the TTL that their
    /// server sends, and for `longest` at most.
    pub fn new(longest: Duration) -> Self {
        Self::with(longest, Sockets)
    }
}

impl<N: Network> Resolver<N> {
    fn with(longest: Duration, network: N) -> Self {
        Self {
            network,
            sources: RefCell::new(Rc::new(Sources {
                hosts: Hosts::default(),
                servers: Servers::default(),
            })),
            lookups: FairPool::new(LOOKUPS),
            cache: CacheLimits {
                longest,
                names: FairPool::new(CACHED),
            },
            functions: RefCell::default(),
        }
    }

    /// Returns the state of a function, which all its workers share.
    pub fn function(&self, number: u64) -> Rc<Function> {
        let mut functions = self.functions.borrow_mut();
        functions.retain(|function| function.strong_count() > 0);
        let mut known = functions.iter().filter_map(Weak::upgrade);
        known
            .find(|known| known.number == number)
            .unwrap_or_else(|| {
                let function = Rc::new(Function::new(number, self.cache.clone()));
                functions.push(Rc::downgrade(&function));
                function
            })
    }

    /// Resolves by the contents of `/etc/hosts`, and then by these servers in their order, from now
    /// on. Forgets all answers of earlier servers, which may belong to another network.
    ///
    /// # Errors
    /// Returns `InvalidInput` if the file is larger than 4 GiB.
    pub fn use_sources(&self, hosts: Vec<u8>, servers: &[SocketAddr]) -> io::Result<()> {
        *self.sources.borrow_mut() = Rc::new(Sources {
            hosts: Hosts::read(hosts)?,
            servers: Servers::new(servers),
        });
        for function in self.functions.borrow().iter().filter_map(Weak::upgrade) {
            function.forget();
        }
        Ok(())
    }

    /// Returns the addresses of a host in the order to try them: IPv6 and IPv4 in turns, and no
    /// more than are tried.
    ///
    /// # Errors
    /// Returns why there are none.
    pub async fn addresses(
        &self,
        host: &Host,
        function: &Function,
    ) -> Result<Vec<IpAddr>, ConnectFailure> {
        let name = match host {
            Host::Address(address) => return Ok(vec![*address]),
            Host::Name(name) => name.as_str(),
        };
        let known: Vec<_> = self.sources.borrow().hosts.addresses(name).collect();
        if !known.is_empty() {
            return in_turns(&known);
        }
        if let Some(reserved) = reserved(name) {
            return reserved;
        }
        if let Some(cached) = function.cache.get(name) {
            return Ok(cached);
        }
        let wire = WireName::new(name).ok_or(FailureCode::DnsError)?;
        let _lookup = self.lookups.acquire(function.number).await;
        // The function may have found the name by a lookup that ended meanwhile.
        if let Some(cached) = function.cache.get(name) {
            return Ok(cached);
        }
        let sources = self.sources.borrow().clone();
        let turn = TURN / (1 << function.silences_in_a_row().min(HALVINGS_MAX));
        let servers = &sources.servers;
        let found = servers
            .find(&self.network, name, &wire, function, turn)
            .await;
        let is_current = Rc::ptr_eq(&sources, &self.sources.borrow());
        if is_current {
            let is_silent = found.as_ref().is_err_and(|unfound| unfound.is_silent());
            function.note_lookup(is_silent);
        }
        let found = found?;
        let addresses = in_turns(&found.addresses)?;
        if is_current {
            function
                .cache
                .put(name, &addresses, found.time, function.number);
        }
        Ok(addresses)
    }
}

/// Answers for reserved names, for which no server is queried (RFC 6761, 6.3 and 6.4; RFC 7686).
fn reserved(name: &str) -> Option<Result<Vec<IpAddr>, ConnectFailure>> {
    match name.rsplit('.').next() {
        Some("localhost") => Some(Ok(vec![
            Ipv6Addr::LOCALHOST.into(),
            Ipv4Addr::LOCALHOST.into(),
        ])),
        Some("invalid" | "onion") => Some(Err(LookupFailure::Known(NO_NAME).into())),
        _ => None,
    }
}

impl From<LookupFailure> for ConnectFailure {
    fn from(unfound: LookupFailure) -> Self {
        let rcode = match unfound {
            // The name exists, without an address.
            LookupFailure::Known(NO_ERROR) => return FailureCode::DestinationNotFound.into(),
            LookupFailure::SilentOnName | LookupFailure::SilentOnAll => {
                return FailureCode::DnsTimeout.into();
            }
            LookupFailure::Known(code) => Some(code),
            LookupFailure::Failed(code) => code,
        };
        Self {
            rcode,
            ..FailureCode::DnsError.into()
        }
    }
}

/// Orders addresses: IPv6 and IPv4 in turns, and no more than are tried.
fn in_turns(found: &[IpAddr]) -> Result<Vec<IpAddr>, ConnectFailure> {
    let (six, four): (Vec<IpAddr>, Vec<_>) = found.iter().partition(|address| address.is_ipv6());
    let longest = six.len().max(four.len());
    let in_turns = (0..longest).flat_map(|at| [six.get(at), four.get(at)].into_iter().flatten());
    let addresses: Vec<_> = in_turns.copied().take(ADDRESSES_MAX).collect();
    if addresses.is_empty() {
        Err(FailureCode::DestinationNotFound.into())
    } else {
        Ok(addresses)
    }
}

#[cfg(test)]
mod tests;
