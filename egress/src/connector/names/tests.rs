//! The order of servers and the sharing of lookups, under a clock that the tests move.

use std::cell::Cell;

use tokio::task::LocalSet;
use tokio::time::Instant;

use super::exchange::LookupAnswer;
use super::function::SILENCE;
use super::*;

const FIRST: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
const SECOND: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2);

/// The behaviour of a server: a delay and an outcome.
type Behaviour = (Duration, Result<LookupAnswer, LookupFailure>);

/// A network of scripted servers that records their queries.
struct Scripted<F> {
    behaviour: F,
    asked: RefCell<Vec<(SocketAddr, String)>>,
    under_way: Cell<usize>,
    most: Cell<usize>,
}

impl<F: Fn(SocketAddr, &str) -> Behaviour> Network for Scripted<F> {
    async fn ask(
        &self,
        server: SocketAddr,
        name: &WireName,
        wait: Duration,
    ) -> Result<LookupAnswer, LookupFailure> {
        struct UnderWay<'a>(&'a Cell<usize>);
        impl Drop for UnderWay<'_> {
            fn drop(&mut self) {
                self.0.set(self.0.get() - 1);
            }
        }
        let name = name.to_text();
        self.under_way.set(self.under_way.get() + 1);
        self.most.set(self.most.get().max(self.under_way.get()));
        let _under_way = UnderWay(&self.under_way);
        let (delay, outcome) = (self.behaviour)(server, &name);
        self.asked.borrow_mut().push((server, name));
        tokio::time::sleep(delay.min(wait)).await;
        if delay > wait {
            Err(outcome.err().unwrap_or(LookupFailure::SilentOnName))
        } else {
            outcome
        }
    }
}

impl<F> Scripted<F> {
    fn taken(&self) -> Vec<(SocketAddr, String)> {
        self.asked.take()
    }
}

fn resolver<F: Fn(SocketAddr, &str) -> Behaviour>(behaviour: F) -> Rc<Resolver<Scripted<F>>> {
    let network = Scripted {
        behaviour,
        asked: RefCell::default(),
        under_way: Cell::default(),
        most: Cell::default(),
    };
    let resolver = Resolver::with(Duration::from_secs(60), network);
    resolver.use_sources(Vec::new(), &[FIRST, SECOND]).unwrap();
    Rc::new(resolver)
}

fn host(name: &str) -> Host {
    Host::parse(name).unwrap()
}

/// An address that is not cached: the next lookup queries again.
fn found(last: u8) -> Behaviour {
    let found = LookupAnswer {
        addresses: vec![IpAddr::from([192, 0, 2, last])],
        time: Duration::ZERO,
    };
    (Duration::from_millis(20), Ok(found))
}

/// A delay longer than any wait.
const NEVER: Behaviour = (Duration::from_secs(3600), Err(LookupFailure::SilentOnName));

fn is_dead(name: &str) -> bool {
    name.ends_with("dead.test")
}

#[tokio::test(start_paused = true)]
async fn one_functions_lookups_do_not_reorder_servers_for_other_functions() {
    let resolver = resolver(|server, name| match (server, is_dead(name)) {
        (FIRST, true) => NEVER,
        (FIRST, false) => found(1),
        _ => found(2),
    });
    let [evil, victim] = [1, 2].map(|number| resolver.function(number));
    let (dead, good) = (host("a.dead.test"), host("db.shop.test"));
    let by = |last| Ok(vec![IpAddr::from([192, 0, 2, last])]);
    assert_eq!(resolver.addresses(&dead, &evil).await, by(2));
    assert_eq!(resolver.network.taken().len(), 2);
    // For other functions, and for this function's other names, the first server stays first.
    for function in [&victim, &evil] {
        assert_eq!(resolver.addresses(&good, function).await, by(1));
    }
    assert_eq!(resolver.addresses(&dead, &victim).await, by(2));
    let asked = resolver.network.taken();
    let asked: Vec<_> = asked.iter().map(|(server, _)| *server).collect();
    assert_eq!(asked, [FIRST, FIRST, FIRST, SECOND]);
    // For this name and this function, the server that was silent comes last for a while.
    let begun = Instant::now();
    assert_eq!(resolver.addresses(&dead, &evil).await, by(2));
    assert_eq!(begun.elapsed(), Duration::from_millis(20));
    assert_eq!(resolver.network.taken()[0].0, SECOND);
    tokio::time::advance(SILENCE).await;
    assert_eq!(resolver.addresses(&dead, &evil).await, by(2));
    assert_eq!(resolver.network.taken()[0].0, FIRST);
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_queried_last_until_it_answers_or_a_timeout() {
    let is_there = Rc::new(Cell::new(false));
    let seen = is_there.clone();
    let resolver = resolver(move |server, _| match (server, seen.get()) {
        (FIRST, false) => (Duration::from_secs(3), Err(LookupFailure::SilentOnAll)),
        (FIRST, true) => found(1),
        _ => found(2),
    });
    let functions = [1, 2].map(|number| resolver.function(number));
    let mut first_asked = Vec::new();
    for (name, function) in [("a.test", 0), ("b.test", 1), ("c.test", 0)] {
        resolver
            .addresses(&host(name), &functions[function])
            .await
            .unwrap();
        first_asked.push(resolver.network.taken()[0].0);
    }
    assert_eq!(first_asked, [FIRST, SECOND, SECOND]);
    tokio::time::advance(SILENCE).await;
    is_there.set(true);
    for function in &functions {
        resolver.addresses(&host("b.test"), function).await.unwrap();
        assert_eq!(resolver.network.taken()[0].0, FIRST);
    }
}

#[tokio::test(start_paused = true)]
async fn a_function_with_silent_names_has_short_lookups_that_affect_no_other_function() {
    let resolver = resolver(|_, name| {
        if is_dead(name) {
            (Duration::from_secs(2), Err(LookupFailure::SilentOnAll))
        } else {
            found(1)
        }
    });
    let [evil, victim] = [1, 2].map(|number| resolver.function(number));
    let mut turns = Vec::new();
    for number in 0..4 {
        let begun = Instant::now();
        let dead = host(&format!("{number}.dead.test"));
        let failed = resolver.addresses(&dead, &evil).await.unwrap_err();
        assert_eq!(failed.code, FailureCode::DnsTimeout);
        turns.push(begun.elapsed().as_millis());
        // Judgements of servers in full turns have expired then.
        tokio::time::advance(SILENCE).await;
    }
    assert_eq!(turns, [7000, 3500, 1750, 1750]);
    // The last turns were short, so that they do not count against a server.
    resolver.network.taken();
    let begun = Instant::now();
    resolver
        .addresses(&host("good.test"), &victim)
        .await
        .unwrap();
    assert_eq!(begun.elapsed(), Duration::from_millis(20));
    assert_eq!(resolver.network.taken()[0].0, FIRST);
    // An answer gives the function its turns back.
    resolver.addresses(&host("good.test"), &evil).await.unwrap();
    let begun = Instant::now();
    let dead = host("5.dead.test");
    resolver.addresses(&dead, &evil).await.unwrap_err();
    assert_eq!(begun.elapsed(), TURN);
}

#[tokio::test(start_paused = true)]
async fn silent_lookups_of_one_function_do_not_delay_other_functions() {
    let resolver = resolver(|_, name| if is_dead(name) { NEVER } else { found(1) });
    let set = LocalSet::new();
    for number in 0..127 {
        for order in 0..20 {
            let resolver = resolver.clone();
            set.spawn_local(async move {
                let function = resolver.function(number);
                let name = host(&format!("{order}.f{number}.dead.test"));
                resolver.addresses(&name, &function).await
            });
        }
    }
    let victim = resolver.function(1000);
    set.run_until(async {
        for name in ["one.test", "two.test", "three.test"] {
            tokio::time::advance(Duration::from_millis(100)).await;
            let begun = Instant::now();
            resolver.addresses(&host(name), &victim).await.unwrap();
            assert_eq!(begun.elapsed(), Duration::from_millis(20), "{name}");
        }
    })
    .await;
    let most = LOOKUPS.floor * 128 + LOOKUPS.shared;
    assert!(
        resolver.network.most.get() <= most,
        "{}",
        resolver.network.most.get()
    );
    // All lookups end, and leave no state.
    set.await;
    assert_eq!(resolver.network.under_way.get(), 0);
    drop(victim);
    assert!(
        resolver
            .functions
            .borrow()
            .iter()
            .all(|known| known.strong_count() == 0)
    );
}

#[tokio::test(start_paused = true)]
async fn one_function_alone_has_more_lookups_at_once_and_those_it_drops_are_free() {
    let resolver = resolver(|_, _| NEVER);
    let function = resolver.function(1);
    let lookup = |number: usize| {
        let (resolver, function) = (&resolver, &function);
        async move {
            let name = host(&format!("{number}.dead.test"));
            resolver.addresses(&name, function).await
        }
    };
    for _ in 0..3 {
        let mut lookups: Vec<_> = (0..50).map(|number| Box::pin(lookup(number))).collect();
        for lookup in &mut lookups {
            assert!(!is_ready_at_once(lookup));
        }
        assert_eq!(resolver.network.under_way.get(), 14);
        drop(lookups);
        assert_eq!(resolver.network.under_way.get(), 0);
    }
}

/// Polls once.
fn is_ready_at_once(future: &mut (impl Future + Unpin)) -> bool {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    std::pin::Pin::new(future).poll(&mut context).is_ready()
}

#[tokio::test(start_paused = true)]
async fn each_function_has_a_cache_of_its_own_which_new_servers_empty() {
    let resolver = resolver(|server, _| {
        let last = if server == FIRST { 1 } else { 2 };
        let found = LookupAnswer {
            addresses: vec![IpAddr::from([192, 0, 2, last])],
            time: Duration::from_secs(3600),
        };
        (Duration::ZERO, Ok(found))
    });
    let functions = [1, 2].map(|number| resolver.function(number));
    for _ in 0..3 {
        for function in &functions {
            resolver.addresses(&host("a.test"), function).await.unwrap();
        }
    }
    assert_eq!(resolver.network.taken().len(), 2);
    // A second worker of the same function shares its cache.
    let again = resolver.function(1);
    resolver.addresses(&host("a.test"), &again).await.unwrap();
    assert_eq!(resolver.network.taken().len(), 0);
    resolver
        .use_sources(b"10.0.0.1 b.test\n".to_vec(), &[SECOND])
        .unwrap();
    let addresses = resolver.addresses(&host("a.test"), &functions[0]).await;
    assert_eq!(addresses, Ok(vec![IpAddr::from([192, 0, 2, 2])]));
    let addresses = resolver.addresses(&host("b.test"), &functions[0]).await;
    assert_eq!(addresses, Ok(vec![IpAddr::from([10, 0, 0, 1])]));
    assert_eq!(resolver.network.taken().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn reserved_names_are_not_queried() {
    let resolver = resolver(|_, _| found(1));
    let function = resolver.function(1);
    for name in ["localhost", "a.localhost"] {
        let addresses = resolver.addresses(&host(name), &function).await.unwrap();
        assert!(addresses.iter().all(IpAddr::is_loopback), "{addresses:?}");
    }
    for name in ["a.invalid", "a.onion"] {
        let failed = resolver.addresses(&host(name), &function).await;
        assert_eq!(failed.unwrap_err().rcode, Some(NO_NAME));
    }
    assert_eq!(resolver.network.taken(), []);
    // Entries of the hosts file come first.
    let hosts = b"192.0.2.7 localhost\n".to_vec();
    resolver.use_sources(hosts, &[FIRST]).unwrap();
    let addresses = resolver.addresses(&host("localhost"), &function).await;
    assert_eq!(addresses, Ok(vec![IpAddr::from([192, 0, 2, 7])]));
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
