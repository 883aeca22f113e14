//! Bodies that stream through real microVMs, and the limits on how long one side may keep the other
//! waiting.
//!
//! Without `/dev/kvm` every test here prints a notice and is ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use faasw_pool::{FreezePolicy, FunctionVersion, InvokeError, ReplyBody, ResponsePart};
use http_body::Frame;

use support::{Bench, Log, arriving, bytes_of, call, next_part, slowness};

async fn a_chunk_is_seen_when_it_is_flushed(bench: &Bench) {
    let seed = bench
        .seed("tests/fixtures/wat/drip.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let expected: Vec<String> = (1..=5).map(|number| format!("drip {number}\n")).collect();
    // The chunks are 100 ms apart. A busy machine may delay this test for that long, so that it
    // sees two chunks as one. If the node held all of them back, it would do so each time.
    for _ in 0..20 {
        let seen = drips(bench, &seed).await;
        assert_eq!(seen.concat(), expected.concat());
        if seen == expected {
            return;
        }
        println!("seen: {seen:?}");
    }
    panic!("chunks are not seen when they are flushed");
}

/// Returns the parts of a response as they arrive.
async fn drips(bench: &Bench, seed: &FunctionVersion) -> Vec<String> {
    let reply = bench.get(seed, "/").await.unwrap();
    let ReplyBody::Stream(mut stream) = reply.body else {
        panic!("the response was held back to its end");
    };
    let mut seen = Vec::new();
    while let Some(part) = next_part(&mut stream).await {
        match part.unwrap() {
            ResponsePart::Data(bytes) => seen.push(String::from_utf8(bytes.to_vec()).unwrap()),
            ResponsePart::End { timing, .. } => assert!(timing.exec >= Duration::from_millis(400)),
        }
    }
    seen
}

async fn an_echo_comes_back_while_the_request_still_arrives(bench: &Bench) {
    let seed = bench
        .seed("tests/fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let (client, body) = arriving();
    let mut order = call("/echo");
    order.head.method = b"POST".to_vec();
    order.body = body;
    let invoking = tokio::spawn({
        let (pool, seed) = (bench.pool.clone(), seed.clone());
        async move { pool.invoke(&seed, order).await }
    });
    client.send(Ok(Frame::data("first ".into()))).await.unwrap();
    let ReplyBody::Stream(mut stream) = invoking.await.unwrap().unwrap().body else {
        panic!("the response was held back to its end");
    };
    let mut seen = String::new();
    for word in ["first ", "second ", "third"] {
        if word != "first " {
            client.send(Ok(Frame::data(word.into()))).await.unwrap();
        }
        while !seen.ends_with(word) {
            match next_part(&mut stream).await.unwrap().unwrap() {
                ResponsePart::Data(bytes) => seen.push_str(std::str::from_utf8(&bytes).unwrap()),
                ResponsePart::End { .. } => panic!("{seen}"),
            }
        }
    }
    drop(client);
    let end = next_part(&mut stream).await.unwrap().unwrap();
    assert!(matches!(end, ResponsePart::End { .. }), "{end:?}");
    assert!(next_part(&mut stream).await.is_none());
}

async fn bodies_larger_than_a_guest_pass_through_it(bench: &Bench) {
    // Several times the capacity of the rings and of all buffers between them.
    const BYTES: usize = 40 << 20;
    let seed = bench
        .seed("tests/fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let byte = |number: usize| (number * 7 % 251) as u8;
    let (client, body) = arriving();
    let mut order = call("/echo");
    order.head.method = b"POST".to_vec();
    order.body = body;
    order.limits.cpu = Duration::from_secs(60) * slowness();
    let sending = tokio::spawn(async move {
        let mut at = 0;
        let mut size = 1;
        while at < BYTES {
            size = (size * 31 % 300_007 + 1).min(BYTES - at);
            let bytes: Vec<u8> = (at..at + size).map(byte).collect();
            if client.send(Ok(Frame::data(bytes.into()))).await.is_err() {
                return;
            }
            at += size;
        }
    });
    let reply = bench.pool.invoke(&seed, order).await.unwrap();
    let ReplyBody::Stream(mut stream) = reply.body else {
        panic!("more than a ring was held back");
    };
    let mut head = Vec::new();
    let mut received = 0;
    while let Some(part) = next_part(&mut stream).await {
        let ResponsePart::Data(mut bytes) = part.unwrap() else {
            continue;
        };
        if received == 0 && !head.ends_with(b"\n\n") {
            // The probe first echoes the request's head.
            head.extend_from_slice(&bytes);
            let Some(end) = head.windows(2).position(|two| two == b"\n\n") else {
                continue;
            };
            bytes = Bytes::copy_from_slice(&head[end + 2..]);
            head.truncate(end + 2);
        }
        let right = bytes
            .iter()
            .copied()
            .eq((received..).take(bytes.len()).map(byte));
        assert!(right, "other bytes near {received}");
        received += bytes.len();
    }
    assert_eq!(received, BYTES);
    sending.await.unwrap();
}

async fn a_client_that_takes_nothing_slows_the_guest_and_then_loses_it(bench: &Bench) {
    let seed = bench
        .seed("tests/fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let mut order = call("/body/100000000");
    order.limits.idle_client = Duration::from_millis(500) * slowness();
    order.limits.cpu = Duration::from_secs(60) * slowness();
    let ended = Arc::new(Log::default());
    order.log = ended.clone();
    let reply = bench.pool.invoke(&seed, order).await.unwrap();
    let ReplyBody::Stream(mut stream) = reply.body else {
        panic!("a hundred megabytes were held back");
    };
    let result = ended.stream_result().await;
    assert!(
        matches!(result, Err(InvokeError::IdleClient(_))),
        "{result:?}"
    );
    // Data that was on its way still arrives, and then the body is cut off instead of ended.
    let mut received = 0;
    let last = loop {
        match next_part(&mut stream).await {
            Some(Ok(ResponsePart::Data(bytes))) => received += bytes.len(),
            other => break other,
        }
    };
    assert!(matches!(last, Some(Err(_))), "{last:?}");
    assert!(received < 4 << 20, "{received}");
}

async fn a_client_that_leaves_ends_its_instance(bench: &Bench) {
    let seed = bench
        .seed("tests/fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let mut order = call("/body/100000000");
    let ended = Arc::new(Log::default());
    order.log = ended.clone();
    let reply = bench.pool.invoke(&seed, order).await.unwrap();
    drop(reply);
    let result = ended.stream_result().await;
    assert!(matches!(result, Err(InvokeError::ClientGone)), "{result:?}");
}

async fn a_silent_guest_times_out(bench: &Bench) {
    let seed = bench
        .seed("tests/fixtures/wat/drip.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let mut order = call("/");
    // The guest is silent for 100 ms at a time, on any machine.
    order.limits.idle_guest = Duration::from_millis(20);
    let reply = bench.pool.invoke(&seed, order).await.unwrap();
    let cut = bytes_of(reply.body).await;
    assert!(matches!(cut, Err(InvokeError::IdleGuest(_))), "{cut:?}");
}

async fn cpu_time_is_bounded_apart_from_wall_time(bench: &Bench) {
    let probe = bench
        .seed("tests/fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let mut order = call("/loop");
    order.limits.cpu = Duration::from_millis(200) * slowness();
    let ended = bench.pool.invoke(&probe, order).await;
    assert!(matches!(ended, Err(InvokeError::CpuLimit(_))), "{ended:?}");
    // Sleeping costs no CPU time.
    let mut order = call("/sleep/600");
    order.limits.cpu = Duration::from_millis(500) * slowness();
    let slept = bench.pool.invoke(&probe, order).await.unwrap();
    assert_eq!(slept.head.status, 200);
}

fn main() {
    support::main(|skip| {
        let mut all = Vec::new();
        for confinement in support::EACH {
            all.extend(trials![skip, confinement;
                a_chunk_is_seen_when_it_is_flushed,
                an_echo_comes_back_while_the_request_still_arrives,
                bodies_larger_than_a_guest_pass_through_it,
                a_client_that_takes_nothing_slows_the_guest_and_then_loses_it,
                a_client_that_leaves_ends_its_instance,
                a_silent_guest_times_out,
                cpu_time_is_bounded_apart_from_wall_time,
            ]);
        }
        all
    });
}
