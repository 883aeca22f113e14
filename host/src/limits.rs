//! The node's limits.

use faasw_client::{FunctionOptions, RequestLimits, TimeLimit};
use std::time::Duration;

/// The maximum sizes, counts and times of a node.
///
/// Memory and the five times of a request are defaults that a function's options may change. The
/// other limits apply to every function.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// CPU time of a request's instance.
    pub cpu_time: Duration,
    /// Wall time from the last part of the request that the function received to the first byte of
    /// the response.
    pub first_byte: Duration,
    /// Wall time for which a client may read or send nothing while its function waits for it, and
    /// in which each MiB of an import must arrive.
    pub idle_client: Duration,
    /// Wall time for which a function may neither read nor send anything after the first byte of
    /// its response.
    pub idle_guest: Duration,
    /// Wall time of a request from the fork to its end; `None` is no limit.
    pub total_time: Option<Duration>,
    /// Bytes of all linear memories of an instance together.
    pub memory: u64,
    /// Bytes of a request's body.
    pub request_body: u64,
    /// Bytes of the names and values of a request's header fields together.
    pub request_head: usize,
    /// Number of header fields of a request.
    pub request_fields: usize,
    /// Time for a client to send a request's head, from the head's first byte or from the start of
    /// the connection. A body has the same time, and more by its size.
    pub request_read: Duration,
    /// Time without a request after which a connection is closed.
    pub idle_connection: Duration,
    /// Bytes per second that a request's body must have on average, once it is behind by more than
    /// `request_read` while the node waits for it. 0 is no limit.
    pub body_rate: u64,
    /// Bytes in the node's memory that wait for clients to read them, or that clients have sent and
    /// instances have not read. Beyond the limit they stay in instances or with clients.
    pub undelivered: u64,
    /// Limit of the bytes of `undelivered` for the responses of one function.
    pub undelivered_function: u64,
    /// Limit of the bytes of `undelivered` for one connection.
    pub undelivered_connection: u64,
    /// Bytes of a module that is deployed.
    pub module: usize,
    /// CPU time for compiling a module.
    pub compile_cpu: Duration,
    /// Bytes of private memory for compiling a module.
    pub compile_memory: u64,
    /// Wall time for instantiating a function during its deployment.
    pub instantiation: Duration,
    /// Concurrent connections of a listener. A further one replaces a connection whose client is
    /// idle or keeps the node waiting, if there is one.
    pub connections: usize,
    /// Concurrent connections of one address, or of one /64 of IPv6. A further one replaces one of
    /// these in the same way.
    pub connections_per_address: usize,
    /// Number of keys of each key-value store, private or shared.
    pub store_keys: u64,
    /// Bytes of a store's keys and values together.
    pub store_bytes: u64,
    /// Concurrent outbound calls of all functions together.
    pub outbound: usize,
    /// Concurrent outbound calls of one function. One invocation has at most 16. Beyond 16, a
    /// function also has no more calls than it leaves to others of the node's limit.
    pub outbound_function: usize,
    /// Time that [`crate::Node::shutdown`] waits for requests under way.
    pub shutdown: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu_time: Duration::from_secs(10),
            first_byte: Duration::from_secs(10),
            idle_client: Duration::from_secs(30),
            idle_guest: Duration::from_secs(60),
            total_time: None,
            memory: 128 << 20,
            request_body: 1 << 30,
            // Half of the mailbox's area: the rest is for the request line and the lengths between
            // fields.
            request_head: 32 << 10,
            request_fields: 100,
            request_read: Duration::from_secs(5),
            idle_connection: Duration::from_secs(30),
            body_rate: 500,
            undelivered: 128 << 20,
            undelivered_function: 64 << 20,
            undelivered_connection: 2 << 20,
            module: 64 << 20,
            compile_cpu: Duration::from_secs(120),
            compile_memory: 2 << 30,
            instantiation: Duration::from_secs(60),
            connections: 4096,
            connections_per_address: 1024,
            store_keys: 1_000_000,
            store_bytes: 256 << 20,
            outbound: 1024,
            outbound_function: 256,
            shutdown: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// Returns the times of a request to a function with these options.
    pub(crate) fn of_request(&self, options: &FunctionOptions) -> RequestLimits {
        let own = |limit| options.own_time(limit);
        RequestLimits {
            cpu_time: own(TimeLimit::CpuTime).unwrap_or(self.cpu_time),
            first_byte: own(TimeLimit::Timeout).unwrap_or(self.first_byte),
            idle_client: own(TimeLimit::IdleClient).unwrap_or(self.idle_client),
            idle_guest: own(TimeLimit::IdleGuest).unwrap_or(self.idle_guest),
            total_time: own(TimeLimit::TotalTime).or(self.total_time),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_time_limits_follow_the_node() {
        let node = Limits::default();
        let limits = node.of_request(&FunctionOptions::default());
        assert_eq!(
            (limits.cpu_time, limits.first_byte),
            (node.cpu_time, node.first_byte)
        );
        assert_eq!(
            (limits.idle_client, limits.idle_guest),
            (node.idle_client, node.idle_guest)
        );
        assert_eq!(limits.total_time, None);
    }

    #[test]
    fn each_time_limit_is_set_alone_and_round_trips_through_the_registry() {
        let seconds = Duration::from_secs;
        let options = FunctionOptions::default()
            .cpu_time(seconds(1))
            .first_byte(seconds(2))
            .idle_client(seconds(3))
            .idle_guest(seconds(4))
            .total_time(seconds(5));
        let json = serde_json::to_string(&options).unwrap();
        let read: FunctionOptions = serde_json::from_str(&json).unwrap();
        assert_eq!(read, options, "{json}");
        let limits = Limits::default().of_request(&read);
        assert_eq!(
            [
                limits.cpu_time,
                limits.first_byte,
                limits.idle_client,
                limits.idle_guest,
                limits.total_time.unwrap(),
            ],
            [1, 2, 3, 4, 5].map(seconds)
        );
    }
}
