//! Options of `up`, `serve` and `pod` for clients: their number, timeouts and memory.

use std::time::Duration;

use clap::Args;
use faasw::{IpNet, Limits, NodeBuilder};

use super::values::{at_least_one, time};

#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Clients")]
pub struct Clients {
    /// Serve at most this many connections at once [default: 4096]
    ///
    /// At the limit, the node closes another connection: first of addresses with many, and idle
    /// ones before busy ones. If all are busy, it closes the new one.
    #[arg(long, value_name = "CONNECTIONS", value_parser = at_least_one)]
    pub max_connections: Option<usize>,
    /// Serve at most this many connections of one address, or of one IPv6 /64
    #[arg(long, value_name = "CONNECTIONS", default_value = "1024", value_parser = at_least_one)]
    pub max_connections_per_address: usize,
    /// Trust X-Forwarded-For from proxies at these addresses (repeatable)
    #[arg(long, value_name = "CIDR", value_parser = range)]
    pub trusted_proxy: Vec<IpNet>,
    /// Use the X-Request-Id that trusted proxies send as the request's id
    ///
    /// The proxy must generate unique ids and discard those of clients. A valid id has 1 to 64
    /// letters, digits, -, _, . and :.
    #[arg(long, requires = "trusted_proxy")]
    pub proxy_request_ids: bool,
    /// Use the X-Forwarded-Prefix of trusted proxies as the beginning of functions' URLs
    ///
    /// For proxies that remove the beginning of paths. The proxy must set or drop this field of
    /// clients.
    #[arg(long, requires = "trusted_proxy")]
    pub proxy_prefixes: bool,
    /// Close a connection whose request head or TLS handshake takes longer
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = time)]
    pub head_timeout: Duration,
    /// Close a connection without a request after this time
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = time)]
    pub idle_connection: Duration,
    /// Reject request bodies slower than this many bytes a second; 0 accepts any rate
    ///
    /// A body may lag behind this rate by --head-timeout.
    #[arg(long, value_name = "BYTES", default_value_t = 500)]
    pub body_rate: u64,
    /// Buffer this many MiB of responses that clients have not read yet [default: 128]
    ///
    /// A single function may use half of it. Further responses wait in their instances, which stay
    /// busy.
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
            .proxy_request_ids(self.proxy_request_ids)
            .proxy_prefixes(self.proxy_prefixes);
        proxies.fold(builder, NodeBuilder::trusted_proxy)
    }
}
