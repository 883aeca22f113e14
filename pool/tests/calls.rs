//! Outbound calls of functions in real microVMs to servers in memory.
//!
//! Without `/dev/kvm` every test here prints a notice and is ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use faasw_pool::outgoing::{Failure, FailureCode, Tail};
use faasw_pool::{
    AnswerPart, FreezePolicy, FunctionVersion, InvocationRequest, InvokeError, PoolOptions, Served,
};
use tokio::sync::{Barrier, Notify};

use support::servers::{Conversation, Server};
use support::{Bench, Log, bytes_of, call, slowness, spec, whole};

const PROBE: &str = "tests/fixtures/call-probe.wasm";

async fn probe(bench: &Bench) -> FunctionVersion {
    bench.seed(PROBE, FreezePolicy::Auto).await.unwrap()
}

fn order(server: &Arc<Server>, path: &str) -> InvocationRequest {
    InvocationRequest {
        outbound: Some(server.clone()),
        ..call(path)
    }
}

async fn asked(
    bench: &Bench,
    seed: &FunctionVersion,
    order: InvocationRequest,
) -> Result<String, InvokeError> {
    let reply = bench.pool.invoke(seed, order).await?;
    let body = bytes_of(reply.body).await?;
    Ok(String::from_utf8(body).unwrap())
}

async fn text(bench: &Bench, seed: &FunctionVersion, server: &Arc<Server>, path: &str) -> String {
    asked(bench, seed, order(server, path)).await.unwrap()
}

fn none_is_under_way(server: &Server) {
    assert_eq!(server.under_way.load(Ordering::SeqCst), 0);
}

async fn a_request_of_its_own_is_answered(bench: &Bench) {
    let seed = probe(bench).await;
    let server = Arc::new(Server::of_paths());
    for round in 0..5 {
        let told = text(
            bench,
            &seed,
            &server,
            &format!("/get/a.example/round/{round}"),
        )
        .await;
        assert_eq!(told, format!("200 \"/round/{round}\""));
        none_is_under_way(&server);
    }
    assert_eq!(server.begun.load(Ordering::SeqCst), 5);
    let server = Arc::new(Server::new(|conversation: Conversation| async move {
        let head = &conversation.request.head;
        assert_eq!(head.authority, b"b.example:99");
        assert_eq!(
            (&head.method[..], &head.scheme[..]),
            (&b"HEAD"[..], &b"http"[..])
        );
        assert!(conversation.request.is_whole);
        conversation.head().await;
        let tail = Tail::Trailers(vec![(b"x-sum".into(), b"7".into())]);
        conversation
            .say(AnswerPart::End(tail.encode().into()))
            .await;
    }));
    let told = text(bench, &seed, &server, "/head/b.example:99/").await;
    assert_eq!(told, "200 \"\" trailer x-sum=7");
}

async fn outbound_calls_are_denied_without_a_service(bench: &Bench) {
    let seed = probe(bench).await;
    for path in ["/get/a/", "/duplex/a/9", "/flood/a/9"] {
        let told = bench.text(&seed, path).await;
        assert!(
            told.ends_with("refused ErrorCode::HttpRequestDenied"),
            "{told}"
        );
    }
}

/// Returns a server that sends back the request body as it arrives.
fn echo() -> Server {
    Server::new(|mut conversation: Conversation| async move {
        conversation.head().await;
        while let Some(bytes) = conversation.body().await {
            conversation.say(AnswerPart::Data(bytes.into())).await;
        }
        conversation
            .say(AnswerPart::End(conversation.tail().into()))
            .await;
    })
}

async fn bodies_pass_both_ways_at_once(bench: &Bench) {
    let seed = probe(bench).await;
    let server = Arc::new(echo());
    let told = text(bench, &seed, &server, "/duplex/a/3000000").await;
    assert_eq!(told, "sent 3000000 got 3000000 same true");
    let told = text(bench, &seed, &server, "/before/a/1000000").await;
    assert_eq!(told, "200 1000000 bytes");
    let told = text(bench, &seed, &server, "/body/trailers/a").await;
    assert_eq!(told, "200 \"abc\" trailer x-end=yes");
    let told = text(bench, &seed, &server, "/body/dropped/a").await;
    assert!(
        told.contains("\"abc\" then ErrorCode::InternalError"),
        "{told}"
    );
    none_is_under_way(&server);
    // From the function's client to a server, and back.
    let body: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let server = Arc::new(Server::new(|mut conversation: Conversation| async move {
        let mut all = Vec::new();
        while let Some(bytes) = conversation.body().await {
            all.extend(bytes);
        }
        conversation.head().await;
        for piece in all.chunks(50_000) {
            conversation
                .say(AnswerPart::Data(Bytes::copy_from_slice(piece)))
                .await;
        }
        conversation.say(AnswerPart::End(Bytes::new())).await;
    }));
    let sent = InvocationRequest {
        body: whole(&body),
        ..order(&server, "/proxy/a/")
    };
    let reply = bench.pool.invoke(&seed, sent).await.unwrap();
    assert!(bytes_of(reply.body).await.unwrap() == body);
}

async fn one_call_per_channel_is_under_way_at_once(bench: &Bench) {
    let seed = probe(bench).await;
    // No call is answered before all have arrived.
    let all = Arc::new(Barrier::new(16));
    let server = Arc::new(Server::new(move |mut conversation: Conversation| {
        let all = all.clone();
        async move {
            all.wait().await;
            conversation.answer(b"x").await;
        }
    }));
    let told = text(bench, &seed, &server, "/at-once/a/18").await;
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 18, "{told}");
    assert_eq!(lines[0], "16 refused ErrorCode::ConnectionLimitReached");
    assert!(
        lines[2..].iter().all(|line| line.ends_with(" 200 \"x\"")),
        "{told}"
    );
    none_is_under_way(&server);
    // A lower limit admits fewer calls.
    let server = Arc::new(Server::of_paths());
    let mut few = order(&server, "/at-once/a/5");
    few.limits.calls = 2;
    let told = asked(bench, &seed, few).await.unwrap();
    assert_eq!(told.matches("ConnectionLimitReached").count(), 3, "{told}");
}

async fn channels_are_used_again_and_again(bench: &Bench) {
    let seed = probe(bench).await;
    let server = Arc::new(Server::of_paths());
    for _ in 0..2 {
        let told = text(bench, &seed, &server, "/in-turn/a/100").await;
        assert_eq!(told, "100 good, last 200 \"/99\"");
        let told = text(bench, &seed, &server, "/flood/a/100").await;
        assert_eq!(told, "200 \"/after\"");
        none_is_under_way(&server);
    }
    let mut narrow = order(&server, "/flood/a/50");
    narrow.limits.calls = 1;
    let told = asked(bench, &seed, narrow).await.unwrap();
    assert_eq!(told, "200 \"/after\"");
}

async fn dropping_an_answer_ends_its_call(bench: &Bench) {
    let seed = probe(bench).await;
    for what in ["future", "response", "stream", "trailers"] {
        // The response body never ends by itself once the function has dropped it.
        let server = Arc::new(Server::new(|mut conversation: Conversation| async move {
            if conversation.request.head.path_and_query == b"/after" {
                conversation.answer(b"after").await;
            } else {
                conversation.head().await;
                while conversation.say(AnswerPart::Data("abc".into())).await {}
            }
        }));
        let told = text(bench, &seed, &server, &format!("/drop/{what}/a/endless")).await;
        assert_eq!(told, "written false, 200 \"after\"", "{what}");
        none_is_under_way(&server);
    }
}

async fn each_failure_is_reported_with_its_own_code(bench: &Bench) {
    let seed = probe(bench).await;
    let refused = || Failure::new(FailureCode::ConnectionRefused);
    let server = Arc::new(Server::new(move |conversation: Conversation| async move {
        conversation.say(AnswerPart::Failed(refused())).await;
    }));
    let told = text(bench, &seed, &server, "/get/a/").await;
    assert_eq!(told, "failed ErrorCode::ConnectionRefused");
    let server = Arc::new(Server::new(|conversation: Conversation| async move {
        conversation.head().await;
        conversation.say(AnswerPart::Data("abc".into())).await;
    }));
    let told = text(bench, &seed, &server, "/get/a/").await;
    let code = "ErrorCode::ConnectionTerminated";
    assert_eq!(told, format!("200 \"abc\" then {code} trailers {code}"));
}

async fn upstream_time_is_not_charged_to_the_function(bench: &Bench) {
    let seed = probe(bench).await;
    // The function has a second of its own, even if it seldom gets a processor.
    let own = Duration::from_secs(1) * slowness();
    let server = Arc::new(Server::new(
        move |mut conversation: Conversation| async move {
            tokio::time::sleep(own + own / 2).await;
            conversation.answer(b"late").await;
        },
    ));
    let mut patient = order(&server, "/get/a/");
    patient.limits.first_byte = own;
    let told = asked(bench, &seed, patient).await.unwrap();
    assert_eq!(told, "200 \"late\"");
    // The total time has a limit all the same.
    let server = Arc::new(Server::silent());
    let mut bounded = order(&server, "/get/a/");
    bounded.limits.total = Some(Duration::from_millis(300) * slowness());
    let ended = asked(bench, &seed, bounded).await;
    assert!(matches!(ended, Err(InvokeError::TotalTime(_))), "{ended:?}");
    none_is_under_way(&server);
    let server = Arc::new(Server::silent());
    let mut idle = order(&server, "/get/a/");
    idle.limits.idle_call = Duration::from_millis(100);
    let told = asked(bench, &seed, idle).await.unwrap();
    assert_eq!(told, "failed ErrorCode::HttpResponseTimeout");
    none_is_under_way(&server);
}

/// An answer arrives after its invocation has ended; the next invocation has the same instance.
async fn late_answers_are_dropped(bench: &Bench) {
    let seed = probe(bench).await;
    bench.warm_one(&seed, "/at-start").await;
    let mut again = 0;
    for round in 0..5 {
        let (go, gone) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let told = (go.clone(), gone.clone());
        let stubborn = Arc::new(Server::stubborn(move |conversation: Conversation| {
            let (go, gone) = told.clone();
            async move {
                assert!(conversation.head().await);
                go.notified().await;
                // The receiver of the response is gone.
                assert!(!conversation.say(AnswerPart::Data("late".into())).await);
                gone.notify_one();
            }
        }));
        let left = text(bench, &seed, &stubborn, "/leave/a/").await;
        assert_eq!(left, "left");
        stubborn.is_let_go.notified().await;
        none_is_under_way(&stubborn);
        go.notify_one();
        let server = Arc::new(Server::of_paths());
        let log = Arc::new(Log::default());
        let next = InvocationRequest {
            log: log.clone(),
            ..order(&server, &format!("/get/a/{round}"))
        };
        bench
            .settles("it is warm", |stats| stats.warm > 0 && stats.busy == 0)
            .await;
        let reply = bench.pool.invoke(&seed, next).await.unwrap();
        again += usize::from(reply.timing.served == Served::Warm);
        let body = bytes_of(reply.body).await.unwrap();
        assert_eq!(body, format!("200 \"/{round}\"").into_bytes());
        gone.notified().await;
    }
    // A zygote may have been made in the meantime, but not each time.
    assert!(again > 0);
}

async fn a_disconnected_client_ends_the_functions_calls(bench: &Bench) {
    let seed = probe(bench).await;
    let server = Arc::new(Server::silent());
    let invoking = tokio::spawn({
        let (pool, seed, order) = (bench.pool.clone(), seed.clone(), order(&server, "/get/a/"));
        async move { pool.invoke(&seed, order).await }
    });
    bench
        .settles("the request is under way", |_| {
            server.under_way.load(Ordering::SeqCst) == 1
        })
        .await;
    invoking.abort();
    server.is_let_go.notified().await;
    none_is_under_way(&server);
}

async fn a_call_during_instantiation_prevents_a_later_freeze_point(bench: &Bench) {
    let mut spec = spec(FreezePolicy::Auto);
    spec.environment.push((b"AT_START".into(), b"1".into()));
    let compiled = bench.compile(PROBE).await;
    let made = bench.pool.make_seed(&spec, &compiled).await.unwrap();
    let (seed, report) = (made.version, made.report);
    assert!(!report.after_init && report.drew_entropy);
    assert!(report.drawn.contains("outgoing-handler#handle: 1 call"));
    let told = bench.text(&seed, "/at-start").await;
    assert_eq!(told, "refused ErrorCode::HttpRequestDenied");
}

async fn hot_instances_make_requests_too(bench: &Bench) {
    let seed = probe(bench).await;
    let server = Arc::new(Server::of_paths());
    for round in 0..50 {
        let told = text(
            bench,
            &seed,
            &server,
            &format!("/in-turn/a/{}", round % 3 + 1),
        )
        .await;
        assert_eq!(
            told,
            format!("{0} good, last 200 \"/{1}\"", round % 3 + 1, round % 3)
        );
    }
    none_is_under_way(&server);
}

/// Options under which guests poll for requests as long as they may, where the host permits it.
fn hot() -> PoolOptions {
    PoolOptions {
        poll: Duration::from_millis(10),
        ..support::usual()
    }
}

/// Options under which only requests make sandboxes.
fn alone() -> PoolOptions {
    PoolOptions {
        zygotes: 0,
        ..PoolOptions::default()
    }
}

fn main() {
    support::main(|skip| {
        let mut all = Vec::new();
        for confinement in support::EACH {
            all.extend(trials![skip, confinement;
                a_request_of_its_own_is_answered,
                outbound_calls_are_denied_without_a_service,
                bodies_pass_both_ways_at_once,
                one_call_per_channel_is_under_way_at_once,
                channels_are_used_again_and_again,
                dropping_an_answer_ends_its_call,
                each_failure_is_reported_with_its_own_code,
                upstream_time_is_not_charged_to_the_function,
                late_answers_are_dropped in alone(),
                a_disconnected_client_ends_the_functions_calls,
                a_call_during_instantiation_prevents_a_later_freeze_point,
                hot_instances_make_requests_too in hot(),
            ]);
        }
        all
    });
}
