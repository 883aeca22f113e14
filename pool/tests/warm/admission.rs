//! Too many requests at once: which are refused, and which are evicted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use faasw_pool::{
    Account, Backlog, BacklogLimits, FreezePolicy, InvocationRequest, InvokeError, ReplyBody,
};
use tokio::sync::Notify;

use crate::probe;
use crate::support::servers::{Conversation, Server};
use crate::support::{Bench, arriving, bytes_of, call, give_up, whole};

/// A request is refused while the only instance is at work, which lasts until the test ends it. A
/// request that waited for the instance would wait for ever.
pub async fn a_full_pool_rejects_requests_soon(bench: &Bench) {
    let path = "tests/fixtures/call-probe.wasm";
    let seed = bench.seed(path, FreezePolicy::Auto).await.unwrap();
    // The instance waits for the answer of an upstream server.
    let may_answer = Arc::new(Notify::new());
    let server = Arc::new(Server::new({
        let may_answer = may_answer.clone();
        move |mut conversation: Conversation| {
            let may_answer = may_answer.clone();
            async move {
                may_answer.notified().await;
                conversation.answer(b"late").await;
            }
        }
    }));
    let mut order = InvocationRequest {
        outbound: Some(server.clone()),
        ..call("/get/a.example/")
    };
    // Only a call that stays without an answer for this long could be evicted.
    order.limits.first_byte = Duration::from_secs(3600);
    let held = tokio::spawn({
        let (pool, seed) = (bench.pool.clone(), seed.clone());
        async move { bytes_of(pool.invoke(&seed, order).await.unwrap().body).await }
    });
    bench
        .settles("it waits for its server", |stats| {
            stats.busy == 1 && server.under_way.load(Ordering::SeqCst) == 1
        })
        .await;
    let refused = bench.get(&seed, "/at-start").await;
    assert!(
        matches!(refused, Err(InvokeError::OverCapacity(1))),
        "{refused:?}"
    );
    may_answer.notify_one();
    assert_eq!(held.await.unwrap().unwrap(), b"200 \"late\"");
    bench.settles("it is over", |stats| stats.busy == 0).await;
    assert_eq!(bench.text(&seed, "/at-start").await, "");
    assert_eq!(bench.pool.stats().evicted, 0);
}

/// A client that announces a body and does not send it, or does not read a response, blocks no
/// permit.
pub async fn an_invocation_that_waits_for_its_client_is_evicted(bench: &Bench) {
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
        // On a busy machine the invocation may not wait for its client yet.
        let begun = Instant::now();
        let reply = loop {
            match bench.get(&seed, "/count").await {
                Err(InvokeError::OverCapacity(1)) if begun.elapsed() < give_up() => {}
                reply => break reply.unwrap(),
            }
        };
        assert_eq!(bytes_of(reply.body).await.unwrap(), b"1\n");
        let ended = held.await.unwrap();
        assert!(matches!(ended, Err(InvokeError::Evicted)), "{ended:?}");
        assert_eq!(bench.pool.stats().evicted, before + 1);
        drop(client);
    }
}

/// The unread part of a completed response stays in the mailbox. Its instance is evicted if another
/// request needs its permit.
pub async fn unread_response_bytes_stay_in_the_mailbox(bench: &Bench) {
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
    // If the client reads the response as it arrives, it receives all of it.
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
    // If the client does not read the response, the node holds no more of it than the connection
    // may hold. The response keeps its place until another request needs it.
    let held = bench.pool.invoke(&seed, ask(&body)).await.unwrap();
    assert!(backlog.held() <= 100 << 10, "{}", backlog.held());
    assert_eq!(bench.pool.stats().busy, 1);
    assert_eq!(bench.text(&seed, "/count").await, "1\n");
    let cut = bytes_of(held.body).await.unwrap_err();
    assert!(matches!(cut, InvokeError::Evicted), "{cut:?}");
    assert_eq!(backlog.held(), 0);
}
