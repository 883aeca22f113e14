//! Too many at once: who is refused, and who is evicted.

use std::time::{Duration, Instant};

use faasw_pool::{Account, Backlog, BacklogLimits, InvokeError, ReplyBody};

use crate::probe;
use crate::support::{Bench, arriving, bytes_of, call, slowness, whole};

pub async fn a_pool_that_is_full_says_so_soon(bench: &Bench) {
    let seed = probe(bench).await;
    let held = tokio::spawn({
        let (pool, seed) = (bench.pool.clone(), seed.clone());
        let order = call(&format!("/sleep/{}", 2000 * slowness()));
        async move { bytes_of(pool.invoke(&seed, order).await.unwrap().body).await }
    });
    bench
        .settles("it is at work", |stats| stats.busy == 1)
        .await;
    let asked = Instant::now();
    let refused = bench.get(&seed, "/count").await;
    let took = asked.elapsed();
    assert!(
        matches!(refused, Err(InvokeError::OverCapacity(1))),
        "{refused:?}"
    );
    assert!(took < Duration::from_secs(1) * slowness(), "{took:?}");
    held.await.unwrap().unwrap();
    assert_eq!(bench.text(&seed, "/count").await, "1\n");
    assert_eq!(bench.pool.stats().evicted, 0);
}

/// A client that promises a body, or leaves a response alone, keeps a place from nobody.
pub async fn who_waits_for_its_client_is_evicted(bench: &Bench) {
    let seed = probe(bench).await;
    for early in [true, false] {
        bench.settles("all is done", |stats| stats.busy == 0).await;
        let before = bench.pool.stats().evicted;
        let (client, body) = arriving();
        let mut order = call("/echo");
        order.body = body;
        order.client.is_early = early;
        let held = tokio::spawn({
            let (pool, seed) = (bench.pool.clone(), seed.clone());
            async move {
                let reply = pool.invoke(&seed, order).await?;
                bytes_of(reply.body).await
            }
        });
        bench
            .settles("it is at work", |stats| stats.busy == 1)
            .await;
        assert_eq!(bench.text(&seed, "/count").await, "1\n");
        let ended = held.await.unwrap();
        assert!(matches!(ended, Err(InvokeError::Evicted)), "{ended:?}");
        assert_eq!(bench.pool.stats().evicted, before + 1);
        drop(client);
    }
}

/// What its client does not take of a response that is done stays in the mailbox, whose
/// instance is evicted for others.
pub async fn what_a_client_does_not_take_stays_in_its_instance(bench: &Bench) {
    const SIZE: usize = 300 << 10;
    let seed = probe(bench).await;
    let backlog = Backlog::new(BacklogLimits {
        node: 1 << 20,
        function: 1 << 20,
        connection: 100 << 10,
    });
    let ask = |body: &[u8]| {
        let mut order = call("/echo");
        order.body = whole(body);
        order.client.account = Account::new(backlog.function(), backlog.connection());
        order
    };
    // Taken as it comes, all of it comes.
    let body: Vec<u8> = (0..SIZE).map(|place| place as u8).collect();
    let reply = bench.pool.invoke(&seed, ask(&body)).await.unwrap();
    assert!(
        matches!(reply.body, ReplyBody::Stream(_)),
        "it fits no budget"
    );
    let echoed = bytes_of(reply.body).await.unwrap();
    assert!(echoed.ends_with(&body), "{} bytes came back", echoed.len());
    bench.settles("it is done", |stats| stats.busy == 0).await;
    assert_eq!(backlog.held(), 0);
    // Left alone, it holds no more than its connection may, and its place until that is
    // wanted.
    let held = bench.pool.invoke(&seed, ask(&body)).await.unwrap();
    assert!(backlog.held() <= 100 << 10, "{}", backlog.held());
    assert_eq!(bench.pool.stats().busy, 1);
    assert_eq!(bench.text(&seed, "/count").await, "1\n");
    let cut = bytes_of(held.body).await.unwrap_err();
    assert!(matches!(cut, InvokeError::Evicted), "{cut:?}");
    assert_eq!(backlog.held(), 0);
}
