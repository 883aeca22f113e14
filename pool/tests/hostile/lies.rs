//! Impossible values of mailbox words, alone and combined.

use faasw_abi::channel::{Channel, ChannelWords, HEAD_MAX, TAIL_MAX};
use faasw_abi::doorbell::Doorbell;
use faasw_abi::mailbox::{GUEST_WORDS, LOG, REPORT};
use faasw_abi::outcome::Outcome;
use faasw_pool::{InvokeError, ResponseHead};

use crate::Battlefield;
use crate::script::{Op, RESPONSE, Script, place, word};
use crate::support::Bench;

/// Returns lies, each with a part of the error that the caller receives.
fn lies() -> Vec<(&'static str, Script, &'static str)> {
    let new = Script::new;
    let head = ResponseHead::default().encode().len() as u64;
    let mut lies = vec![
        ("nothing was said", new(), "without an outcome"),
        ("all bits", all_bits(), "bytes written"),
        ("no head", new().end_without_head(), "in the middle"),
        (
            "an outcome that there is not",
            new().head().store(word!(outcome), 77),
            "unknown outcome",
        ),
        (
            "a head that is none",
            new()
                .store(place(RESPONSE), u64::MAX)
                .store(word!(response_written), 100)
                .store_pair(word!(response_head), 100, 1)
                .store(word!(outcome), 1),
            "response head",
        ),
        (
            "trailers that are none",
            new()
                .head()
                .end()
                .store(place(RESPONSE) + head, u64::MAX)
                .store_pair(
                    word!(response_head),
                    head as u32,
                    ChannelWords::end_with(100),
                ),
            "response trailers",
        ),
        (
            "a log that is none",
            new()
                .head()
                .end()
                .store(place(LOG.area), u64::MAX)
                .store(word!(log_written), 100),
            "not made of records",
        ),
        (
            "a log record longer than the log",
            new()
                .head()
                .end()
                .store_pair(place(LOG.area), 1, u32::MAX)
                .store(word!(log_written), 100),
            "not made of records",
        ),
    ];
    for written in [RESPONSE.size + 1, 1 << 40, 1 << 63, u64::MAX] {
        let script = new().head().end().store(word!(response_written), written);
        lies.push(("a body larger than its ring", script, "bytes written"));
    }
    for written in [LOG.size() + 1, u64::MAX] {
        let script = new().head().end().store(word!(log_written), written);
        lies.push(("a log larger than its ring", script, "log cannot be"));
    }
    for (length, written) in [
        (1, 0),
        (HEAD_MAX as u32 + 1, u64::from(u32::MAX)),
        (HEAD_MAX as u32 + 1, HEAD_MAX + 1),
        (u32::MAX, HEAD_MAX),
    ] {
        let script = new()
            .store(word!(response_written), written)
            .store_pair(word!(response_head), length, 1)
            .store(word!(outcome), 1);
        let told = if written > RESPONSE.size {
            "bytes written"
        } else {
            "response head of"
        };
        lies.push(("a head that cannot be", script, told));
    }
    for end in [ChannelWords::end_with(TAIL_MAX as u32 + 1), u32::MAX] {
        let script = new().head().end();
        let script = script.store_pair(word!(response_head), head as u32, end);
        lies.push(("trailers larger than may be", script, "response tail of"));
    }
    for trap in [0, 12, u32::MAX] {
        let script = new()
            .store(word!(trap), trap.into())
            .store(word!(outcome), Outcome::Trap as u64);
        lies.push(("a trap that there is not", script, "unknown trap"));
    }
    for outcome in [Outcome::Trap, Outcome::GuestFailed] {
        for length in [REPORT.size + 1, u32::MAX.into()] {
            let script = new()
                .store(word!(report_len), length)
                .store(word!(outcome), outcome as u64);
            lies.push(("a report larger than its area", script, "report of"));
        }
    }
    lies
}

fn all_bits() -> Script {
    let words = place(GUEST_WORDS);
    let length = size_of::<faasw_abi::mailbox::GuestWords>() as u64 - 8;
    Script::new()
        .store(words, u64::MAX)
        .step(Op::Copy, words + 8, words, length)
}

pub async fn every_invalid_word_in_the_mailbox_is_rejected(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    for (what, script, told) in lies() {
        for script in [script.clone().done(), script.progress().done()] {
            match field.ends(&script).await {
                Err(InvokeError::GuestFailed(why)) => assert!(why.contains(told), "{what}: {why}"),
                other => panic!("{what}: {other:?}"),
            }
            field.other_functions_are_unaffected().await;
            assert!(!field.is_warm(), "{what}");
        }
    }
    field.nothing_is_left().await;
}

pub async fn no_more_of_a_request_is_read_than_was_written(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    let ring = Channel::INVOCATION.to_guest().size();
    for read in [ring + 1, 2 * ring, u64::MAX] {
        // The body is larger than the free part of the ring, so the node reads the guest's word.
        let script = Script::new()
            .head()
            .store(word!(request_read), read)
            .progress()
            .store(word!(wait_nanoseconds), u64::MAX);
        let from = script.here();
        let script = script.ring(Doorbell::Wait).for_ever_from(from);
        let mut body = script.bytes();
        body.resize(body.len() + 2 * ring as usize, 0);
        let order = faasw_pool::InvocationRequest {
            body: crate::support::whole(&body),
            limits: crate::far_limits(),
            ..crate::support::call("/")
        };
        match field.send(order).await {
            Err(InvokeError::GuestFailed(why)) => {
                assert!(why.contains(&format!("{read} read")), "{read}: {why}");
            }
            other => panic!("{read}: {other:?}"),
        }
        field.other_functions_are_unaffected().await;
        assert!(!field.is_warm(), "{read}");
    }
    field.nothing_is_left().await;
}

pub async fn a_response_that_was_ended_cannot_go_on(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    // A stream whose end the client has received; after that, only the handler's return is due.
    let script = Script::new()
        .head()
        .store(word!(wait_nanoseconds), 20_000_000);
    let script = script
        .ring(Doorbell::Wait)
        .end()
        .store(word!(outcome), 0)
        .progress();
    let from = script.here();
    let script = script
        .ring(Doorbell::Wait)
        .step(Op::Add, word!(response_written), 1, 0)
        .progress()
        .for_ever_from(from);
    let log = std::sync::Arc::new(crate::support::Log::default());
    let order = faasw_pool::InvocationRequest {
        body: crate::support::whole(&script.bytes()),
        // No limit is to end it.
        limits: crate::far_limits(),
        log: log.clone(),
        ..crate::support::call("/")
    };
    // The client may or may not receive the end of the response before that.
    let _ = field.send(order).await;
    let ended = log.stream_result().await;
    assert!(
        matches!(&ended, Err(InvokeError::GuestFailed(why)) if why.contains("continued a message")),
        "{ended:?}"
    );
    field.nothing_is_left().await;
}

pub async fn a_head_cannot_be_taken_back(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    for head in [0, 7] {
        // The node has read the head, and may have passed it on.
        let script = Script::new().head().progress().until_head_is_taken();
        let script = script
            .store_pair(word!(response_head), head, 0)
            .progress()
            .store(word!(wait_nanoseconds), u64::MAX);
        let from = script.here();
        let script = script.ring(Doorbell::Wait).for_ever_from(from);
        let log = std::sync::Arc::new(crate::support::Log::default());
        let order = faasw_pool::InvocationRequest {
            body: crate::support::whole(&script.bytes()),
            limits: crate::far_limits(),
            log: log.clone(),
            ..crate::support::call("/")
        };
        let ended = match field.send(order).await {
            Ok(_) => log.stream_result().await,
            Err(error) => Err(error),
        };
        assert!(
            matches!(&ended, Err(InvokeError::GuestFailed(why)) if why.contains("withdrew")),
            "{head}: {ended:?}"
        );
        field.other_functions_are_unaffected().await;
        assert!(!field.is_warm());
    }
    field.nothing_is_left().await;
}
