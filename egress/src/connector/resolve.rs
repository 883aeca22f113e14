//! Addresses of names.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use faasw_abi::outgoing::FailureCode;
use faasw_egress_policy::Host;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{Query, ResponseCode};
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

/// How long a server of names may take for an answer, and how often all that said nothing are asked.
const ANSWER: Duration = Duration::from_secs(3);
const ROUNDS: usize = 2;

/// How long finding a name may take altogether: whoever has a name that nobody answers for holds one of [`ASKED`] for so
/// long. Of many servers that say nothing those behind are asked the next time, when these are asked behind them.
const ALTOGETHER: Duration = Duration::from_secs(7);

/// How long a server that has said nothing is asked behind the others.
const SILENCE: Duration = Duration::from_secs(30);

/// Finds addresses.
pub struct Resolver {
    /// What the host has said last. Whoever asks already goes on by what it said before.
    told: RefCell<Rc<Told>>,
    asked: Semaphore,
    kept: Kept,
}

/// What the host says of names.
struct Told {
    hosts: Hosts,
    /// In order of preference.
    servers: Vec<Server>,
}

/// A server of names: not one of several of hickory's, which asks them by how fast they have been, and ends at one
/// that says that it has failed.
struct Server {
    resolver: TokioResolver,
    /// It has said nothing to whoever asked, a moment ago.
    silent_until: Cell<Option<Instant>>,
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

impl Server {
    fn new(server: SocketAddr) -> io::Result<Self> {
        let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
        let connections = connections.map(|mut connection| {
            connection.port = server.port();
            connection
        });
        let config = NameServerConfig::new(server.ip(), true, connections.into());
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![config]);
        let mut builder =
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let options = builder.options_mut();
        options.timeout = ANSWER;
        // Datagrams that are lost are sent again within that time; whom to ask next is said here.
        options.attempts = 0;
        options.cache_size = 0;
        // Its root is empty, and what the file has is asked before.
        options.use_hosts_file = ResolveHosts::Never;
        Ok(Self {
            resolver: builder.build().map_err(io::Error::other)?,
            silent_until: Cell::default(),
        })
    }

    fn is_silent(&self) -> bool {
        let silent_until = self.silent_until.get();
        silent_until.is_some_and(|until| until > Instant::now())
    }

    /// Asks for addresses of both families.
    async fn ask(&self, name: &Name) -> Result<Found, Unfound> {
        let ask = |record_type| self.resolver.lookup(name.clone(), record_type);
        let (four, six) = tokio::join!(ask(RecordType::A), ask(RecordType::AAAA));
        let [four, six] = [four, six].map(|asked| asked.map_err(|error| Unfound::of(&error)));
        let is_silent = matches!([&four, &six], [Err(Unfound::Silent), Err(Unfound::Silent)]);
        self.silent_until
            .set(is_silent.then(|| Instant::now() + SILENCE));
        match (four, six) {
            (Ok(four), Ok(six)) => Ok(Found::new(&[four, six])),
            // One family is enough, whatever became of the other.
            (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(Found::new(&[one])),
            (Err(four), Err(six)) => Err(four.or(six)),
        }
    }
}

/// What a server has found, and for how long that holds.
struct Found {
    addresses: Vec<IpAddr>,
    time: Duration,
}

impl Found {
    fn new(lookups: &[Lookup]) -> Self {
        let now = std::time::Instant::now();
        let (mut addresses, mut time) = (Vec::new(), Duration::MAX);
        for lookup in lookups {
            let answers = lookup.answers();
            addresses.extend(answers.iter().filter_map(|record| record.data.ip_addr()));
            // Of a chain of names each link counts.
            let shortest = answers.iter().map(|record| record.ttl).min();
            let shortest = Duration::from_secs(shortest.unwrap_or_default().into());
            let valid = lookup.valid_until().saturating_duration_since(now);
            time = time.min(shortest).min(valid);
        }
        Self { addresses, time }
    }
}

/// Why a server has found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unfound {
    /// There is no such name, or it has no address: nobody else need be asked.
    Known(ResponseCode),
    /// It cannot say. Others may.
    Failed(Option<ResponseCode>),
    /// It said nothing in time.
    Silent,
}

impl Unfound {
    fn of(error: &NetError) -> Self {
        let code = match error {
            NetError::Timeout | NetError::Io(_) | NetError::NoConnections => return Self::Silent,
            NetError::Dns(DnsError::NoRecordsFound(none)) => none.response_code,
            NetError::Dns(DnsError::ResponseCode(code)) => *code,
            _ => return Self::Failed(None),
        };
        match code {
            ResponseCode::NoError | ResponseCode::NXDomain => Self::Known(code),
            _ => Self::Failed(Some(code)),
        }
    }

    /// What there is to say of two: one that is known is so where the other is, too, and whoever says anything says more
    /// than who does not.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Known(_), other) | (Self::Silent, other) => other,
            (failed @ Self::Failed(_), _) => failed,
        }
    }
}

impl From<Unfound> for Failed {
    fn from(unfound: Unfound) -> Self {
        let code = match unfound {
            // The name is there, and has no address.
            Unfound::Known(ResponseCode::NoError) => {
                return FailureCode::DestinationNotFound.into();
            }
            Unfound::Silent => return FailureCode::DnsTimeout.into(),
            Unfound::Known(code) => Some(code),
            Unfound::Failed(code) => code,
        };
        Self {
            code: FailureCode::DnsError,
            rcode: code.map(u16::from),
        }
    }
}

impl Told {
    /// Asks servers in their order, those last that were silent, until one knows.
    async fn ask(&self, name: &Name) -> Result<Found, Unfound> {
        let (silent, rest): (Vec<_>, Vec<_>) =
            self.servers.iter().partition(|server| server.is_silent());
        let mut to_be_asked = [rest, silent].concat();
        let mut why = Unfound::Failed(None);
        for round in 0..ROUNDS {
            let mut are_silent = Vec::new();
            for (at, server) in to_be_asked.into_iter().enumerate() {
                let unfound = match server.ask(name).await {
                    Ok(found) => return Ok(found),
                    Err(known @ Unfound::Known(_)) => return Err(known),
                    Err(unfound) => unfound,
                };
                if unfound == Unfound::Silent {
                    are_silent.push(server);
                }
                why = match (round, at) {
                    (0, 0) => unfound,
                    _ => why.or(unfound),
                };
            }
            to_be_asked = are_silent;
        }
        Err(why)
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

impl Resolver {
    /// One that knows nothing until it is told. Addresses are kept as long as their server says, and `cache` at most.
    pub fn new(cache: Duration) -> Self {
        Self {
            told: RefCell::new(Rc::new(Told {
                hosts: Hosts::default(),
                servers: Vec::new(),
            })),
            asked: Semaphore::new(ASKED),
            kept: Kept {
                longest: cache,
                names: RefCell::default(),
            },
        }
    }

    /// Resolves by what `/etc/hosts` has, and then by servers in their order, from now on. What others have said before is
    /// forgotten: they may be of another network.
    ///
    /// # Errors
    /// When there is no way to ask.
    pub fn is_told(&self, hosts: &[u8], servers: &[SocketAddr]) -> io::Result<()> {
        let mut known = Hosts::default();
        // A line that is no text has no name that anybody asks for.
        known.read_hosts_conf(String::from_utf8_lossy(hosts).as_bytes())?;
        let servers = servers.iter().map(|server| Server::new(*server));
        *self.told.borrow_mut() = Rc::new(Told {
            hosts: known,
            servers: servers.collect::<io::Result<_>>()?,
        });
        self.kept.names.borrow_mut().clear();
        Ok(())
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
        let known = self.told.borrow().known(&name);
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
        let told = self.told.borrow().clone();
        let found = tokio::time::timeout(ALTOGETHER, told.ask(&name)).await;
        let found = found.unwrap_or(Err(Unfound::Silent))?;
        let addresses = in_turns(&found.addresses)?;
        if Rc::ptr_eq(&told, &self.told.borrow()) {
            self.kept.put(text, &addresses, found.time);
        }
        Ok(addresses)
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
