//! The connections of one listener: their limits, and which one is evicted when there are too many.
//!
//! A connection costs its client next to nothing, so a new client is worth more than an idle one.
//! If a listener is full, one connection is evicted for the new one. Connections of an address with
//! many connections are evicted before those of an address with few. Among these, clients that
//! never sent a request are evicted first, then idle clients, then clients that keep their own
//! requests or responses waiting. Of equal connections the oldest is evicted. If an address has
//! reached its limit, one of its own connections is evicted.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use faasw_pool::Backlog;
use ipnet::IpNet;
use tokio::time::Instant;

use super::peer::{ConnectionValue, Peer, PeerTimeouts, Verdict};
use crate::limits::Limits;

/// Maximum unread bytes of one client: its windows, a head, and one read. Bytes beyond that were
/// framing.
const MOST_UNREAD: u64 = 768 << 10;
/// Divisor of the connection limit: at most this part of the connections is notified before an
/// eviction closes them.
const FAREWELLS: usize = 16;

/// The trusted proxies, and which of their fields are trusted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proxies {
    /// The addresses of the proxies.
    pub(crate) addresses: Vec<IpNet>,
    /// Whether the proxies choose the ids of requests.
    pub(crate) give_ids: bool,
    /// Whether proxies name the path that they remove from URLs.
    pub(crate) give_prefixes: bool,
}

/// The connections of one listener.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    most_of_one: usize,
    proxies: Proxies,
    timeouts: PeerTimeouts,
    /// Maximum unread bytes of all clients together.
    unread: u64,
    backlog: Arc<Backlog>,
    state: Mutex<ConnectionsState>,
}

#[derive(Debug, Default)]
struct ConnectionsState {
    next: u64,
    /// The connections by age.
    open: BTreeMap<u64, OpenConnection>,
    /// The number of evicted connections, which do not count any more.
    leaving: usize,
    /// The number of connections and forwarded requests of each address.
    addresses: HashMap<IpAddr, Arc<AtomicUsize>>,
}

#[derive(Debug)]
struct OpenConnection {
    peer: Arc<Peer>,
    address: Option<AddressCount>,
    /// The connection is evicted and does not count any more.
    is_leaving: bool,
}

/// A connection or forwarded request in an address's count.
#[derive(Debug)]
struct AddressCount {
    address: IpAddr,
    count: Arc<AtomicUsize>,
}

/// A connection's slot among all connections. Dropping it releases the slot.
#[derive(Debug)]
#[must_use = "dropping it gives it back"]
pub(super) struct ConnectionSlot {
    connections: Arc<Connections>,
    number: u64,
    peer: Arc<Peer>,
}

/// A request that came through a proxy, in the count of the forwarded address. Dropping it removes
/// it from the count.
#[derive(Debug)]
pub(super) struct ForwardedRequest {
    connections: Arc<Connections>,
    share: Option<AddressCount>,
}

/// Returns the address that a client counts for. A customer has at least a /64 of IPv6.
fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

impl Connections {
    pub(super) fn new(limits: &Limits, proxies: &Proxies, backlog: &Arc<Backlog>) -> Arc<Self> {
        Arc::new(Self {
            most: limits.connections.max(1),
            most_of_one: limits.connections_per_address.max(1),
            proxies: proxies.clone(),
            timeouts: PeerTimeouts::from(limits),
            unread: limits.undelivered,
            backlog: backlog.clone(),
            state: Mutex::default(),
        })
    }

    /// Whether there are no connections.
    pub(super) fn is_empty(&self) -> bool {
        self.state().open.is_empty()
    }

    /// Whether evicted connections have not ended yet.
    pub(super) fn has_closing_connections(&self) -> bool {
        self.state().leaving > 0
    }

    /// Admits a new connection. Returns `None` if the address or the listener has too many
    /// connections and all of them are busy.
    pub(super) fn admit(self: &Arc<Self>, address: Option<IpAddr>) -> Option<ConnectionSlot> {
        let address = address
            .filter(|address| !self.is_proxy(*address))
            .map(counted);
        let mut state = self.state();
        let farewells = self.most / FAREWELLS;
        if let Some(address) = address
            && state.count(address) >= self.most_of_one
        {
            state.evict(farewells, |open| {
                open.address
                    .as_ref()
                    .is_some_and(|share| share.address == address)
            })?;
        }
        if state.open.len() - state.leaving >= self.most {
            state.evict(farewells, |_| true)?;
        }
        let peer = Peer::new(self.backlog.connection());
        let number = state.next;
        state.next += 1;
        let open = OpenConnection {
            peer: peer.clone(),
            address: address.map(|address| state.join(address)),
            is_leaving: false,
        };
        state.open.insert(number, open);
        Some(ConnectionSlot {
            connections: self.clone(),
            number,
            peer,
        })
    }

    /// Closes the connection with the lowest value, to free its open file. Returns whether there
    /// was one that is not busy.
    pub(super) fn make_room(&self) -> bool {
        self.state().evict(0, |_| true).is_some()
    }

    /// Ends all connections after the requests that are under way.
    pub(super) fn finish(&self) {
        for open in self.state().open.values() {
            open.peer.finish();
        }
    }

    /// Whether the proxies choose the ids of requests.
    pub(super) fn trusts_proxy_ids(&self) -> bool {
        self.proxies.give_ids
    }

    /// Returns whether proxies name the path that they remove from URLs.
    pub(super) fn trusts_proxy_prefixes(&self) -> bool {
        self.proxies.give_prefixes
    }

    /// Whether the address is a trusted proxy's.
    pub(super) fn is_proxy(&self, address: IpAddr) -> bool {
        self.proxies
            .addresses
            .iter()
            .any(|proxies| proxies.contains(&address))
    }

    /// Counts a request that came through a proxy for the client's address, which the proxy names.
    /// Returns `None` if the address has as many requests and connections as one address may have
    /// connections.
    pub(super) fn forwarded(self: &Arc<Self>, address: IpAddr) -> Option<ForwardedRequest> {
        let address = counted(address);
        let mut state = self.state();
        if state.count(address) >= self.most_of_one {
            return None;
        }
        Some(ForwardedRequest {
            connections: self.clone(),
            share: Some(state.join(address)),
        })
    }

    /// Closes the connections of clients that exceed a timeout. If all clients together hold too
    /// many unread bytes, also closes those that hold most.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        let state = self.state();
        let mut unread: Vec<(u64, &Arc<Peer>)> = Vec::new();
        for open in state.open.values() {
            match open.peer.check(now, &self.timeouts) {
                Verdict::Stays => unread.push((open.peer.unread(MOST_UNREAD), &open.peer)),
                Verdict::Finishes(why) => {
                    tracing::trace!("a connection is finished: {why}");
                    open.peer.finish();
                }
                Verdict::Closes(why) => {
                    tracing::debug!("a connection is closed: {why}");
                    open.peer.close();
                }
            }
        }
        let mut in_all: u64 = unread.iter().map(|(bytes, _)| bytes).sum();
        if in_all > self.unread {
            unread.sort_unstable_by_key(|(bytes, _)| *bytes);
            while in_all > self.unread
                && let Some((bytes, peer)) = unread.pop()
            {
                tracing::debug!(bytes, "a connection is closed: too many bytes are unread");
                peer.close();
                in_all -= bytes;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, ConnectionsState> {
        // The state is consistent between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionsState {
    /// Evicts the connection with the lowest value among those that `may` selects. Returns `None`
    /// if all are busy. An idle client is notified of the end first, if fewer than `farewells`
    /// evicted connections are still open. All others are closed at once.
    fn evict(&mut self, farewells: usize, may: impl Fn(&OpenConnection) -> bool) -> Option<()> {
        let (_, standing, Reverse(number)) = self
            .open
            .iter()
            .filter(|(_, open)| !open.is_leaving && may(open))
            .map(|(number, open)| (open.address_load(), open.peer.value(), Reverse(*number)))
            .filter(|(_, standing, _)| *standing > ConnectionValue::Busy)
            .max()?;
        let open = self.open.get_mut(&number)?;
        open.is_leaving = true;
        if standing == ConnectionValue::Idle && self.leaving < farewells {
            open.peer.finish()
        } else {
            open.peer.close()
        }
        self.leaving += 1;
        if let Some(share) = open.address.take() {
            self.leave(&share);
        }
        Some(())
    }

    /// Returns the count of an address.
    fn count(&self, address: IpAddr) -> usize {
        self.addresses
            .get(&address)
            .map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Adds one to the count of an address.
    fn join(&mut self, address: IpAddr) -> AddressCount {
        let count = self.addresses.entry(address).or_default().clone();
        count.fetch_add(1, Ordering::Relaxed);
        AddressCount { address, count }
    }

    /// Subtracts one from the count of an address.
    fn leave(&mut self, share: &AddressCount) {
        if share.count.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.addresses.remove(&share.address);
        }
    }
}

impl OpenConnection {
    /// Returns the binary logarithm of the address's count.
    fn address_load(&self) -> u32 {
        let count = self.address.as_ref();
        let count = count.map_or(1, |share| share.count.load(Ordering::Relaxed));
        count.max(1).ilog2()
    }
}

impl ConnectionSlot {
    /// Returns the connections that the slot belongs to.
    pub(super) fn connections(&self) -> &Arc<Connections> {
        &self.connections
    }

    /// Returns the connection's client.
    pub(super) fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut state = self.connections.state();
        let Some(open) = state.open.remove(&self.number) else {
            return;
        };
        state.leaving -= usize::from(open.is_leaving);
        if let Some(share) = open.address {
            state.leave(&share);
        }
    }
}

impl Drop for ForwardedRequest {
    fn drop(&mut self) {
        if let Some(share) = self.share.take() {
            self.connections.state().leave(&share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::peer::request::ActiveRequest;
    use faasw_pool::BacklogLimits;
    use std::time::Duration;

    fn connections(most: usize, most_of_one: usize) -> Arc<Connections> {
        let limits = Limits {
            connections: most,
            connections_per_address: most_of_one,
            ..Limits::default()
        };
        let proxies = Proxies {
            addresses: vec!["10.0.0.0/8".parse().unwrap()],
            give_ids: false,
            give_prefixes: false,
        };
        Connections::new(&limits, &proxies, &Backlog::new(BacklogLimits::default()))
    }

    async fn is_closed(slot: &ConnectionSlot) -> bool {
        let closed = slot.peer().closed();
        tokio::time::timeout(Duration::ZERO, closed).await.is_ok()
    }

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[tokio::test]
    async fn the_oldest_without_a_request_is_evicted() {
        let all = connections(3, 9);
        let [busy, oldest, newest] = [1, 2, 3].map(|_| all.admit(None).unwrap());
        let _request = busy.peer().begin(true, 0);
        let _new = all.admit(None).unwrap();
        assert!(is_closed(&oldest).await);
        assert!(!is_closed(&busy).await && !is_closed(&newest).await);
        // The evicted connection does not count, whether it has ended yet or not.
        let request = newest.peer().begin(true, 0);
        let _body = request.begin_body();
        let newer = all.admit(None).unwrap();
        let _request = newer.peer().begin(true, 0);
        // A client that has not sent its whole request is evicted next.
        assert!(all.admit(None).is_some());
        assert!(is_closed(&newest).await && !is_closed(&newer).await);
    }

    #[tokio::test]
    async fn a_new_connection_is_rejected_if_all_others_are_busy() {
        let all = connections(2, 9);
        let open = [1, 2].map(|_| all.admit(None).unwrap());
        let _requests = open.each_ref().map(|slot| slot.peer().begin(true, 0));
        assert!(all.admit(None).is_none());
        let [first, second] = open;
        drop(first);
        assert!(all.admit(None).is_some());
        assert!(!is_closed(&second).await);
    }

    #[tokio::test]
    async fn an_address_at_its_limit_loses_its_own_connection() {
        let all = connections(10, 2);
        let other = all.admit(address("192.0.2.1")).unwrap();
        let same = ["2001:db8::1", "2001:db8::2"].map(|of| all.admit(address(of)).unwrap());
        let third = all.admit(address("2001:db8::3")).unwrap();
        assert!(is_closed(&same[0]).await);
        assert!(!is_closed(&same[1]).await && !is_closed(&other).await);
        let _requests = [&same[1], &third].map(|slot| slot.peer().begin(true, 0));
        assert!(all.admit(address("2001:db8::4")).is_none());
        assert!(all.admit(address("2001:db8:1::4")).is_some());
        assert!(all.admit(address("::ffff:192.0.2.1")).is_some());
        drop((other, same, third));
        assert!(all.is_empty() && all.state().addresses.is_empty());
    }

    #[tokio::test]
    async fn through_a_proxy_the_forwarded_address_counts() {
        let all = connections(10, 2);
        let proxies: Vec<_> = (0..5).map(|_| all.admit(address("10.1.2.3"))).collect();
        assert!(proxies.iter().all(Option::is_some));
        let peer: IpAddr = "192.0.2.7".parse().unwrap();
        let held = [all.forwarded(peer), all.forwarded(peer)];
        assert!(held.iter().all(Option::is_some));
        assert!(all.forwarded(peer).is_none());
        drop(held);
        assert!(all.forwarded(peer).is_some());
    }

    #[tokio::test]
    async fn too_much_backlog_closes_the_connection_with_the_most() {
        let limits = Limits {
            undelivered: MOST_UNREAD * 2,
            ..Limits::default()
        };
        let backlog = Backlog::new(BacklogLimits::default());
        let all = Connections::new(&limits, &Proxies::default(), &backlog);
        let [most, much, little] = [1, 2, 3].map(|_| all.admit(None).unwrap());
        most.peer().count_received(MOST_UNREAD * 10);
        much.peer().count_received(MOST_UNREAD - 1000);
        little.peer().count_received(1000);
        // Bytes beyond what can be unread do not count.
        all.sweep();
        assert!(!is_closed(&most).await);
        little.peer().count_received(1);
        all.sweep();
        assert!(is_closed(&most).await);
        assert!(!is_closed(&much).await && !is_closed(&little).await);
    }

    #[tokio::test]
    async fn eviction_prefers_addresses_with_many_connections() {
        let all = connections(6, 9);
        let other = all.admit(address("192.0.2.1")).unwrap();
        let same = [1, 2, 3, 4, 5].map(|_| all.admit(address("192.0.2.9")).unwrap());
        let requests = same.each_ref().map(|slot| slot.peer().begin(true, 0));
        let _bodies = requests.each_ref().map(ActiveRequest::begin_body);
        let _new = all.admit(address("192.0.2.2")).unwrap();
        assert!(!is_closed(&other).await, "it has nothing to do, but is one");
        assert!(is_closed(&same[0]).await && !is_closed(&same[1]).await);
    }

    #[tokio::test]
    async fn eviction_prefers_unserved_connections_and_says_farewell_to_served_ones() {
        let all = connections(32, 99);
        let slots: Vec<_> = (0..32).map(|_| all.admit(None).unwrap()).collect();
        let (served, silent) = slots.split_at(31);
        for slot in served {
            drop(slot.peer().begin(false, 0));
        }
        let mut new = vec![all.admit(None).unwrap()];
        assert!(is_closed(&silent[0]).await);
        drop(new[0].peer().begin(false, 0));
        for slot in served.iter().take(2) {
            new.push(all.admit(None).unwrap());
            drop(new.last().unwrap().peer().begin(false, 0));
            let hears = slot.peer().finished();
            let hears = tokio::time::timeout(Duration::ZERO, hears).await;
            // Two evicted clients may be notified first; the silent one is the other.
            let is_first = std::ptr::eq(slot, &raw const served[0]);
            assert_eq!(hears.is_ok(), is_first);
            assert_ne!(is_closed(slot).await, is_first);
        }
        drop(slots);
        assert_eq!(all.state().leaving, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sweep_closes_overdue_connections() {
        let all = connections(10, 9);
        let [silent, quick] = [1, 2].map(|_| all.admit(None).unwrap());
        drop(quick.peer().begin(true, 0));
        tokio::time::advance(all.timeouts.head).await;
        all.sweep();
        assert!(is_closed(&silent).await && !is_closed(&quick).await);
    }
}
