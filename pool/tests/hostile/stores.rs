//! Lies on the channel of a store, and answers that arrive too late.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use faasw_abi::channel::{Channel, ChannelWords};
use faasw_abi::doorbell::Doorbell;
use faasw_abi::store::RECORD_MAX;
use faasw_pool::{InvocationRequest, InvokeError, StoreAnswerFuture, StoreService};

use crate::script::{Script, place, word};
use crate::support::{Bench, call, whole};
use crate::{Battlefield, far_limits};

/// A store that never answers. It counts requests, and those among them that are not dropped yet.
#[derive(Debug, Default)]
struct Silent {
    asked: AtomicUsize,
    waiting: Arc<AtomicUsize>,
}

/// An answer that is still awaited.
struct AwaitedAnswer(Arc<AtomicUsize>);

impl Drop for AwaitedAnswer {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl StoreService for Silent {
    fn answer(&self, _: Vec<u8>) -> StoreAnswerFuture {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let waiting = AwaitedAnswer(self.waiting.clone());
        Box::pin(async move {
            let _waiting = waiting;
            std::future::pending().await
        })
    }
}

/// Returns the address of a word that the guest writes about the channel of its store.
fn told(field: usize) -> u64 {
    let channel = Channel::STORE.number() * size_of::<ChannelWords>();
    word!(channels) + (channel + field) as u64
}

fn written() -> u64 {
    told(offset_of!(ChannelWords, written))
}

/// Writes eight bytes where the guest's first record begins, and announces `count` bytes.
fn sends(script: Script, bytes: u64, count: u64) -> Script {
    script
        .store(place(Channel::STORE.to_host().area), bytes)
        .store(written(), count)
        .progress()
}

fn order(script: &Script, store: &Arc<Silent>) -> InvocationRequest {
    InvocationRequest {
        body: whole(&script.bytes()),
        limits: far_limits(),
        store: Some(store.clone()),
        ..call("/")
    }
}

pub async fn every_invalid_record_ends_the_guest(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    let ring = Channel::STORE.to_host().size();
    let new = Script::new;
    // A record of four bytes takes eight with its length.
    let record = 4;
    let lies = [
        ("too long", sends(new(), RECORD_MAX as u64 + 1, 4)),
        ("more than a record", sends(new(), record, 9)),
        ("more than the ring", sends(new(), record, ring + 1)),
        ("without end", sends(new(), record, u64::MAX)),
        ("no waiting", sends(sends(new(), record, 8), record, 9)),
        // Head and end are adjacent 32-bit words.
        (
            "a head",
            new()
                .store(told(offset_of!(ChannelWords, head)), 1)
                .progress(),
        ),
        (
            "an end",
            new()
                .store(told(offset_of!(ChannelWords, head)), 1 << 32)
                .progress(),
        ),
        (
            "read what is not there",
            new()
                .store(told(offset_of!(ChannelWords, read)), 1)
                .progress(),
        ),
    ];
    for (what, script) in lies {
        let script = script.store(word!(wait_nanoseconds), u64::MAX);
        // The guest waits for the store's answers, so that the node reads all words of the channel.
        let script = script
            .store(
                word!(wait_for),
                faasw_abi::channel::Waits::bytes(Channel::STORE).word(),
            )
            .progress();
        let from = script.here();
        let script = script.ring(Doorbell::Wait).for_ever_from(from);
        let store = Arc::new(Silent::default());
        match field.send(order(&script, &store)).await {
            Err(InvokeError::GuestFailed(_)) => {}
            other => panic!("{what}: {other:?}"),
        }
        assert_eq!(store.waiting.load(Ordering::SeqCst), 0, "{what}");
        field.other_functions_are_unaffected().await;
        assert!(!field.is_warm(), "{what}");
    }
    field.nothing_is_left().await;
}

pub async fn an_answer_that_is_late_is_dropped_with_its_invocation(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    let store = Arc::new(Silent::default());
    for round in 1..=3 {
        // The guest does not wait for an answer.
        let script = sends(Script::new(), 4, 8).head().end().done();
        let answered = field.send(order(&script, &store)).await;
        assert_eq!(answered.unwrap(), b"");
        assert!(store.asked.load(Ordering::SeqCst) <= round);
        assert_eq!(store.waiting.load(Ordering::SeqCst), 0);
        field.other_functions_are_unaffected().await;
    }
    field.nothing_is_left().await;
}

pub async fn without_a_store_its_channel_is_ignored(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    // The node does not read the guest's words about a channel that is not open.
    let script = sends(Script::new(), u64::MAX, u64::MAX).head().end().done();
    let answered = field.ends(&script).await;
    assert_eq!(answered.unwrap(), b"");
    field.nothing_is_left().await;
}
