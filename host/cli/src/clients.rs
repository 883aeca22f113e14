//! Options of `up`, `serve` and `pod` for clients: their number, timeouts and memory.

use std::time::Duration;

use clap::Args;
use faasw::{IpNet, Limits, NodeBuilder};

use super::values::{at_least_one, time};

#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Clients")]
pub struct Clients {
    /// Serve at most this many connections at once; for a further one another is closed,
    /// first of addresses with many, and those that ask for nothing [default: 4096]
    #[arg(long, value_name = "CONNECTIONS", value_parser = at_least_one)]
    pub max_connections: Option<usize>,
    /// Serve at most this many of one address, or of one /64 of IPv6
    #[arg(long, value_name = "CONNECTIONS", default_value = "1024", value_parser = at_least_one)]
    pub max_connections_per_address: usize,
    /// Believe the proxies at these addresses whom they speak for, by X-Forwarded-For; any
    /// number of times
    #[arg(long, value_name = "CIDR", value_parser = range)]
    pub trusted_proxy: Vec<IpNet>,
    /// Take the X-Request-Id that these proxies send for a request's id, where it is 1 to 64
    /// letters, digits, -, _, . and :. They are to give each request another one, and to let
    /// no client choose it
    #[arg(long, requires = "trusted_proxy")]
    pub proxy_request_ids: bool,
    /// Close a connection whose request's head takes longer
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = time)]
    pub head_timeout: Duration,
    /// Close a connection that has had no request for this long
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = time)]
    pub idle_connection: Duration,
    /// Refuse bodies of requests that come with less than this many bytes a second, once
    /// they are behind by more than --head-timeout; 0 takes any
    #[arg(long, value_name = "BYTES", default_value_t = 500)]
    pub body_rate: u64,
    /// Let what clients have not taken yet be this many MiB in the node's memory, half of
    /// it of one function; the rest waits in instances [default: 128]
    #[arg(long, value_name = "MIB")]
    pub undelivered_memory: Option<u64>,
}

/// Parses a range of addresses, or a single address.
fn range(text: &str) -> Result<IpNet, String> {
    let alone = text.parse::<std::net::IpAddr>().map(IpNet::from);
    text.parse()
        .or(alone)
        .map_err(|_| "not an address or a range of them, such as 10.0.0.0/8".to_owned())
}

impl Clients {
    /// Configures a node with these options on top of the given limits.
    pub fn apply(&self, builder: NodeBuilder, mut limits: Limits) -> NodeBuilder {
        limits.connections = self.max_connections.unwrap_or(limits.connections);
        limits.connections_per_address = self.max_connections_per_address;
        limits.request_read = self.head_timeout;
        limits.idle_connection = self.idle_connection;
        limits.body_rate = self.body_rate;
        if let Some(mebibytes) = self.undelivered_memory {
            limits.undelivered = mebibytes.saturating_mul(1 << 20);
        }
        limits.undelivered_function = limits.undelivered / 2;
        limits.undelivered_connection = limits.undelivered_connection.min(limits.undelivered / 8);
        let proxies = self.trusted_proxy.iter().copied();
        let builder = builder
            .limits(limits)
            .proxy_request_ids(self.proxy_request_ids);
        proxies.fold(builder, NodeBuilder::trusted_proxy)
    }
}
