//! The node's limits.

use std::time::Duration;

use faasw_abi::mailbox::{REQUEST_BODY, RESPONSE_BODY};

/// What a node takes, gives and waits for at most.
///
/// Memory and time of a function are defaults that its options may change;
/// the other limits hold for every function.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Wall time of a request, from the fork to the response.
    pub time: Duration,
    /// Linear memories of an instance together, in bytes.
    pub memory: u64,
    /// Body of a request, in bytes; at most the 1 MiB of a mailbox.
    pub request_body: usize,
    /// Body of a response, in bytes; at most the 1 MiB of a mailbox.
    pub response_body: usize,
    /// Names and values of a request's header fields together, in bytes.
    pub request_head: usize,
    /// Header fields of a request.
    pub request_fields: usize,
    /// Time for a client to send its request's head, and again for its body.
    pub request_read: Duration,
    /// A module given to `deploy`, in bytes.
    pub module: usize,
    /// CPU time that compiling a module may take.
    pub compile_cpu: Duration,
    /// Memory that compiling a module may take, in bytes of address space.
    pub compile_memory: u64,
    /// Wall time that instantiating a function may take while it is deployed.
    pub instantiation: Duration,
    /// Connections that a listener serves at once; further ones wait.
    pub connections: usize,
    /// How long [`crate::Node::shutdown`] waits for requests under way.
    pub shutdown: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(10),
            memory: 128 << 20,
            request_body: area_bytes(REQUEST_BODY.size),
            response_body: area_bytes(RESPONSE_BODY.size),
            // Half of the mailbox's area: the rest is for the request line and
            // the lengths between fields.
            request_head: 32 << 10,
            request_fields: 100,
            request_read: Duration::from_secs(30),
            module: 64 << 20,
            compile_cpu: Duration::from_secs(120),
            compile_memory: 2 << 30,
            instantiation: Duration::from_secs(60),
            connections: 4096,
            shutdown: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// These limits, none larger than a mailbox allows.
    pub(crate) fn within_mailbox(mut self) -> Self {
        self.request_body = self.request_body.min(area_bytes(REQUEST_BODY.size));
        self.response_body = self.response_body.min(area_bytes(RESPONSE_BODY.size));
        self
    }
}

fn area_bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}
