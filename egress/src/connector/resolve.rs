//! Addresses of names.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use faasw_abi::outgoing::FailureCode;
use faasw_egress_policy::Host;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{Hosts, TokioResolver};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::Failed;
use super::reach::ADDRESSES_MAX;

/// How many names are kept.
const NAMES: usize = 1024;

/// How many names are asked for at once, and how many of them for one worker: an answer of 64 KiB has
/// some thousand records, which take a mebibyte or two.
const ASKED: usize = 20;
const ASKED_FOR_WORKER: usize = 4;

/// How long a server of names may take for an answer, and how often it is asked again.
const ANSWER: Duration = Duration::from_secs(3);
const AGAIN: usize = 1;

/// Finds addresses.
pub struct Resolver {
    hosts: Hosts,
    servers: TokioResolver,
    asked: Semaphore,
    kept: Kept,
}

/// A worker's share of what is asked.
pub struct Share(Semaphore);

impl Share {
    /// A worker's.
    pub fn new() -> Self {
        Self(Semaphore::new(ASKED_FOR_WORKER))
    }
}

/// What servers of names have said, and until when. Not hickory's cache, which keeps whole answers,
/// however large.
struct Kept {
    longest: Duration,
    names: RefCell<HashMap<String, (Instant, Vec<IpAddr>)>>,
}

impl Kept {
    fn get(&self, name: &str) -> Option<Vec<IpAddr>> {
        let names = self.names.borrow();
        let (until, addresses) = names.get(name)?;
        (*until > Instant::now()).then(|| addresses.clone())
    }

    fn put(&self, name: &str, addresses: &[IpAddr], time: Duration) {
        let now = Instant::now();
        let until = now + time.min(self.longest);
        if until == now {
            return;
        }
        let mut names = self.names.borrow_mut();
        if names.len() >= NAMES {
            names.retain(|_, (until, _)| *until > now);
        }
        if names.len() >= NAMES {
            // Whichever: all are asked for again within a minute or so.
            let one = names.keys().next().cloned();
            one.and_then(|one| names.remove(&one));
        }
        names.insert(name.to_owned(), (until, addresses.to_vec()));
    }
}

impl Resolver {
    /// Resolves by what `/etc/hosts` has, and then by servers in their order. Addresses are
    /// kept as long as their server says, and `cache` at most.
    ///
    /// # Errors
    /// When there is no way to ask.
    pub fn new(hosts: &[u8], servers: &[SocketAddr], cache: Duration) -> io::Result<Self> {
        let servers = servers.iter().map(|server| {
            let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
            let connections = connections.map(|mut connection| {
                connection.port = server.port();
                connection
            });
            NameServerConfig::new(server.ip(), true, connections.into())
        });
        let config = ResolverConfig::from_parts(None, Vec::new(), servers.collect());
        let mut builder =
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let options = builder.options_mut();
        options.timeout = ANSWER;
        options.attempts = AGAIN;
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.cache_size = 0;
        // Its root is empty, and what the file has is asked before.
        options.use_hosts_file = ResolveHosts::Never;
        // One server is asked at a time, as systems do.
        options.num_concurrent_reqs = 1;
        let servers = builder.build().map_err(io::Error::other)?;
        let mut known = Hosts::default();
        // A line that is no text has no name that anybody asks for.
        known.read_hosts_conf(String::from_utf8_lossy(hosts).as_bytes())?;
        Ok(Self {
            hosts: known,
            servers,
            asked: Semaphore::new(ASKED),
            kept: Kept {
                longest: cache,
                names: RefCell::default(),
            },
        })
    }

    /// The addresses of a host: IPv6 and IPv4 in turns, as they are to be tried, and no more than
    /// are.
    ///
    /// # Errors
    /// When it has none.
    pub async fn addresses(&self, host: &Host, share: &Share) -> Result<Vec<IpAddr>, Failed> {
        let text = match host {
            Host::Address(address) => return Ok(vec![*address]),
            Host::Name(name) => name.as_str(),
        };
        let mut name = Name::from_ascii(text).map_err(|_| FailureCode::DnsError)?;
        // As it is, without a domain to search it in.
        name.set_fqdn(true);
        let known = self.known(&name);
        if !known.is_empty() {
            return in_turns(&known);
        }
        if let Some(kept) = self.kept.get(text) {
            return Ok(kept);
        }
        // The worker's share first: who waits for that keeps nobody else waiting.
        let limit = |_| FailureCode::ConnectionLimitReached;
        let _of_worker = share.0.acquire().await.map_err(limit)?;
        let _of_all = self.asked.acquire().await.map_err(limit)?;
        let asked = self.servers.lookup_ip(name).await;
        let asked = asked.map_err(|error| failed(&error))?;
        let found: Vec<_> = asked.iter().collect();
        let addresses = in_turns(&found)?;
        // Of a chain of names each link counts.
        let times = asked.as_lookup().answers().iter().map(|record| record.ttl);
        let time = Duration::from_secs(times.min().unwrap_or_default().into());
        let valid = asked
            .valid_until()
            .saturating_duration_since(std::time::Instant::now());
        self.kept.put(text, &addresses, time.min(valid));
        Ok(addresses)
    }

    /// What `/etc/hosts` has for a name. Where it has anything, no server is asked: not for the
    /// other family either.
    fn known(&self, name: &Name) -> Vec<IpAddr> {
        let of_type = |record_type| {
            let query = Query::query(name.clone(), record_type);
            let known = self.hosts.lookup_static_host(&query);
            let records = known.iter().flat_map(|known| known.answers());
            records
                .filter_map(|record| record.data.ip_addr())
                .collect::<Vec<_>>()
        };
        [of_type(RecordType::A), of_type(RecordType::AAAA)].concat()
    }
}

/// IPv6 and IPv4 in turns: as many as are tried.
fn in_turns(found: &[IpAddr]) -> Result<Vec<IpAddr>, Failed> {
    let (six, four): (Vec<IpAddr>, Vec<_>) = found.iter().partition(|address| address.is_ipv6());
    let longest = six.len().max(four.len());
    let in_turns = (0..longest).flat_map(|at| [six.get(at), four.get(at)].into_iter().flatten());
    let addresses: Vec<_> = in_turns.copied().take(ADDRESSES_MAX).collect();
    match addresses.is_empty() {
        true => Err(FailureCode::DestinationNotFound.into()),
        false => Ok(addresses),
    }
}

fn failed(error: &NetError) -> Failed {
    let rcode = match error {
        NetError::Timeout => return FailureCode::DnsTimeout.into(),
        NetError::Dns(DnsError::NoRecordsFound(none)) => Some(u16::from(none.response_code)),
        NetError::Dns(DnsError::ResponseCode(code)) => Some(u16::from(*code)),
        _ => None,
    };
    match rcode {
        // The name is there, and has no address.
        Some(0) => FailureCode::DestinationNotFound.into(),
        rcode => Failed {
            code: FailureCode::DnsError,
            rcode,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_for_their_time_and_no_more_than_so_many() {
        let kept = Kept {
            longest: Duration::from_secs(3600),
            names: RefCell::default(),
        };
        let addresses = [IpAddr::from([192, 0, 2, 1])];
        kept.put("never.example", &addresses, Duration::ZERO);
        assert_eq!(kept.get("never.example"), None);
        for number in 0..NAMES + 10 {
            let name = format!("{number}.example");
            kept.put(&name, &addresses, Duration::MAX);
            assert_eq!(kept.get(&name).as_deref(), Some(&addresses[..]));
        }
        assert_eq!(kept.names.borrow().len(), NAMES);
    }

    #[test]
    fn of_many_addresses_as_many_are_taken_as_are_tried_of_both_families_in_turns() {
        let four = (0..100).map(|number| IpAddr::from([192, 0, 2, number]));
        let six = IpAddr::from([0x2620, 0, 0, 0, 0, 0, 0, 1]);
        let taken = in_turns(&four.chain([six]).collect::<Vec<_>>()).unwrap();
        assert_eq!(taken.len(), ADDRESSES_MAX);
        assert_eq!(taken[..2], [six, IpAddr::from([192, 0, 2, 0])]);
        assert!(in_turns(&[]).is_err());
    }
}
