//! The node's limits, and the kinds of time that a request may take.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::spelling;

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
    /// function waits for it.
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
    /// Memory that compiling a module may take, in bytes of address space.
    pub compile_memory: u64,
    /// Wall time that instantiating a function may take while it is deployed.
    pub instantiation: Duration,
    /// Connections that a listener serves at once. A further one takes the place of the
    /// oldest that has no request under way, if there is one.
    pub connections: usize,
    /// Connections of one address, or of one /64 of IPv6, at once; likewise.
    pub connections_per_address: usize,
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
            shutdown: Duration::from_secs(10),
        }
    }
}

/// The times that hold for a request: the function's own where it set them,
/// else the node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RequestLimits {
    /// CPU time of the instance.
    #[serde(rename = "cpu_time_us", with = "spelling::microseconds")]
    pub cpu_time: Duration,
    /// From the fork to the first byte of the response.
    #[serde(rename = "first_byte_us", with = "spelling::microseconds")]
    pub first_byte: Duration,
    /// Without progress of the client while the function waits for it.
    #[serde(rename = "idle_client_us", with = "spelling::microseconds")]
    pub idle_client: Duration,
    /// Without progress of the function after its first byte.
    #[serde(rename = "idle_guest_us", with = "spelling::microseconds")]
    pub idle_guest: Duration,
    /// From the fork to the end; nothing is no limit.
    #[serde(rename = "total_time_us", with = "spelling::optional_microseconds")]
    pub total_time: Option<Duration>,
}

/// A kind of time that can be limited. The same word is the flag of the command
/// line, the parameter of the admin API and the key in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TimeLimit {
    CpuTime,
    /// To the first byte.
    Timeout,
    IdleClient,
    IdleGuest,
    TotalTime,
}

impl TimeLimit {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::CpuTime => "cpu-time",
            Self::Timeout => "timeout",
            Self::IdleClient => "idle-client",
            Self::IdleGuest => "idle-guest",
            Self::TotalTime => "total-time",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        [
            Self::CpuTime,
            Self::Timeout,
            Self::IdleClient,
            Self::IdleGuest,
            Self::TotalTime,
        ]
        .into_iter()
        .find(|limit| limit.word() == word)
    }
}
