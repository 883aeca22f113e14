//! The choice of connections to close when a shared budget is full.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::connection::{Connection, LOOK_AGAIN, SMALL};

/// Time after which a client that takes nothing counts as stalled, in microseconds.
const STALL_MICROSECONDS: u64 = 1_000_000;

/// All connections of a node, and when they were last searched for one to close.
#[derive(Debug, Default)]
pub struct ConnectionCloser {
    listed: Mutex<ListedConnections>,
}

#[derive(Debug, Default)]
struct ListedConnections {
    connections: Vec<Weak<Connection>>,
    closed_at: Option<u64>,
}

impl ConnectionCloser {
    /// Adds a connection to the list.
    pub fn list(&self, connection: &Arc<Connection>) {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let all = &mut listed.connections;
        // Before the list grows, entries of connections that are gone are removed.
        if all.len() == all.capacity() {
            all.retain(|connection| connection.strong_count() > 0);
            let count = all.len();
            all.reserve(count.max(16));
        }
        all.push(Arc::downgrade(connection));
    }

    /// Closes stalled connections, those that hold most first, until `wanted` bytes are freed. If
    /// no connection is stalled, closes the one that would take longest to empty, among those that
    /// hold at least [`SMALL`]. If `function` is set, only connections that last received bytes of
    /// that function are considered. Returns how many connections were closed. Does nothing if the
    /// last search was less than [`LOOK_AGAIN`] ago, because a closed connection takes a moment to
    /// release its bytes.
    pub fn close(&self, now: u64, function: Option<usize>, wanted: u64) -> u64 {
        let open = {
            let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
            let last = listed.closed_at;
            let again = u64::try_from(LOOK_AGAIN.as_micros()).unwrap_or(u64::MAX);
            if last.is_some_and(|last| now.saturating_sub(last) < again) {
                return 0;
            }
            listed.closed_at = Some(now);
            let all = listed.connections.iter().filter_map(Weak::upgrade);
            all.filter(|connection| connection.held() > 0 && !connection.is_closed())
                .filter(|connection| {
                    function.is_none_or(|function| function == connection.last_function())
                })
                .collect::<Vec<_>>()
        };
        let mut stalled: Vec<_> = open
            .iter()
            .filter(|connection| connection.stalled(now) >= STALL_MICROSECONDS)
            .collect();
        stalled.sort_by_key(|connection| std::cmp::Reverse(connection.held()));
        let (mut freed, mut closed) = (0, 0);
        for connection in stalled {
            if freed >= wanted {
                break;
            }
            freed += connection.held();
            closed += 1;
            connection.close();
        }
        if closed > 0 {
            tracing::debug!(
                closed,
                bytes = freed,
                "connections of clients that read nothing are closed"
            );
            return closed;
        }
        let slowest = open
            .iter()
            .filter(|connection| connection.held() >= SMALL)
            .filter_map(|connection| Some((connection.time_to_empty(now)?, connection)))
            .max_by_key(|(time, _)| *time);
        let Some((_, slowest)) = slowest else {
            return 0;
        };
        tracing::debug!(
            bytes = slowest.held(),
            "the slowest client's connection is closed"
        );
        slowest.close();
        1
    }
}
