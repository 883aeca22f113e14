//! Addresses of names.

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

use super::Failed;

/// How many names are kept.
const NAMES: u64 = 1024;

/// How long a server of names may take for an answer, and how often it is asked again.
const ANSWER: Duration = Duration::from_secs(3);
const AGAIN: usize = 1;

/// Finds addresses.
pub struct Resolver {
    hosts: Hosts,
    servers: TokioResolver,
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
        options.cache_size = match cache.is_zero() {
            true => 0,
            false => NAMES,
        };
        options.positive_max_ttl = Some(cache);
        options.negative_max_ttl = Some(cache);
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
        })
    }

    /// The addresses of a host: IPv6 and IPv4 in turns, as they are to be tried.
    ///
    /// # Errors
    /// When it has none.
    pub async fn addresses(&self, host: &Host) -> Result<Vec<IpAddr>, Failed> {
        let name = match host {
            Host::Address(address) => return Ok(vec![*address]),
            Host::Name(name) => name,
        };
        let mut name = Name::from_ascii(name.as_str()).map_err(|_| FailureCode::DnsError)?;
        // As it is, without a domain to search it in.
        name.set_fqdn(true);
        let mut found = self.known(&name);
        if found.is_empty() {
            let asked = self.servers.lookup_ip(name).await;
            found = asked.map_err(|error| failed(&error))?.iter().collect();
        }
        let (six, four): (Vec<IpAddr>, Vec<_>) =
            found.iter().partition(|address| address.is_ipv6());
        let longest = six.len().max(four.len());
        let in_turns =
            (0..longest).flat_map(|at| [six.get(at), four.get(at)].into_iter().flatten());
        let addresses: Vec<_> = in_turns.copied().collect();
        match addresses.is_empty() {
            true => Err(FailureCode::DestinationNotFound.into()),
            false => Ok(addresses),
        }
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
