//! The node's limits.

use faasw_client::{FunctionOptions, RequestLimits, TimeLimit};
use std::time::Duration;

/// What a node takes, gives and waits for at most.
///
/// Memory and the five times of a request are defaults that a function's
/// options may change; the other limits hold for every function.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// CPU time that a request's instance may take.
    pub cpu_time: Duration,
    /// Wall time of a request from the fork to the first byte of the response.
    pub first_byte: Duration,
    /// Wall time for which a client may take or send nothing while its
    /// function waits for it, and in which each MiB of an import has to come.
    pub idle_client: Duration,
    /// Wall time for which a function may neither take nor send anything
    /// after its first byte.
    pub idle_guest: Duration,
    /// Wall time of a request from the fork to its end; nothing is no limit.
    pub total_time: Option<Duration>,
    /// Linear memories of an instance together, in bytes.
    pub memory: u64,
    /// Body of a request, in bytes.
    pub request_body: u64,
    /// Names and values of a request's header fields together, in bytes.
    pub request_head: usize,
    /// Header fields of a request.
    pub request_fields: usize,
    /// Time for a client to send a request's head, from its first byte on, or from the
    /// connection's begin. A body has as much time, and more by its size.
    pub request_read: Duration,
    /// Time without a request after which a connection is closed.
    pub idle_connection: Duration,
    /// Bytes of a request's body that must come in a second, on average, once it is behind
    /// by more than `request_read` while somebody waits for it. 0 is no limit.
    pub body_rate: u64,
    /// Bytes that wait for clients to take them, or for an instance to take them from a
    /// client, in the memory of the node. Beyond it they wait where they are: in
    /// instances, or with clients.
    pub undelivered: u64,
    /// The same for the responses of one function.
    pub undelivered_function: u64,
    /// The same for one connection.
    pub undelivered_connection: u64,
    /// A module given to `deploy`, in bytes.
    pub module: usize,
    /// CPU time that compiling a module may take.
    pub compile_cpu: Duration,
    /// Memory of its own that compiling a module may take, in bytes.
    pub compile_memory: u64,
    /// Wall time that instantiating a function may take while it is deployed.
    pub instantiation: Duration,
    /// Connections that a listener serves at once. A further one takes the place of the
    /// oldest that has no request under way, if there is one.
    pub connections: usize,
    /// Connections of one address, or of one /64 of IPv6, at once; likewise.
    pub connections_per_address: usize,
    /// Keys of each key-value store: of a function's own, and of one that functions share.
    pub store_keys: u64,
    /// Its keys and values together, in bytes.
    pub store_bytes: u64,
    /// Requests that functions make at once, all together.
    pub outbound: usize,
    /// Requests that one function makes at once; one invocation makes 16. Nor does it make more
    /// than are left for others of those of the node, but for 16.
    pub outbound_function: usize,
    /// How long [`crate::Node::shutdown`] waits for requests under way.
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
            // Half of the mailbox's area: the rest is for the request line and
            // the lengths between fields.
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
    /// The times that hold for a request of a function with these options.
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
    fn times_that_are_left_out_follow_the_node() {
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
    fn each_time_is_set_by_itself_and_survives_the_registry() {
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
