//! Lies on the channels of a guest's outbound calls, and floods of such calls.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use faasw_abi::channel::{Channel, ChannelKind, ChannelWords, HEAD_MAX, TAIL_MAX, Waits};
use faasw_abi::doorbell::Doorbell;
use faasw_abi::mailbox::{HOST_WORDS, HostWords};
use faasw_abi::memory_map::MAILBOX;
use faasw_abi::outgoing::OutgoingHead;
use faasw_pool::{InvocationRequest, InvokeError};

use crate::script::{Op, Script, place, word};
use crate::support::servers::Server;
use crate::support::{Bench, call, whole};
use crate::{Battlefield, far_limits, short_limits};

const CHANNEL: Channel = ChannelKind::Call.channel();
const WITHIN: usize = CHANNEL.number() * size_of::<ChannelWords>();

/// Returns the address of a word that the guest writes about the channel.
fn told(field: usize) -> u64 {
    word!(channels) + (WITHIN + field) as u64
}

/// Returns the address of a word that the node writes about the channel.
fn said(field: usize) -> u64 {
    let channels = offset_of!(HostWords, channels);
    MAILBOX + HOST_WORDS.offset + (channels + WITHIN + field) as u64
}

fn written() -> u64 {
    told(offset_of!(ChannelWords, written))
}

/// The words for head and end are adjacent.
fn head() -> u64 {
    told(offset_of!(ChannelWords, head))
}

fn turn() -> u64 {
    told(offset_of!(ChannelWords, turn))
}

fn request() -> Vec<u8> {
    OutgoingHead {
        method: b"GET".to_vec(),
        path_and_query: b"/".to_vec(),
        ..OutgoingHead::default()
    }
    .encode()
}

/// Begins a request in the current turn of the channel.
fn begins(script: Script, end: u32) -> Script {
    let bytes = request();
    let length = bytes.len() as u64;
    script
        .write(place(CHANNEL.to_host().area), &bytes)
        .store(written(), length)
        .store_pair(head(), length as u32, end)
        .progress()
}

/// Continues when the node has read the request.
fn is_taken(script: Script) -> Script {
    let read = said(offset_of!(ChannelWords, read));
    script.step(Op::Until, read, request().len() as u64, 0)
}

fn order(script: &Script, server: &Arc<Server>) -> InvocationRequest {
    InvocationRequest {
        body: whole(&script.bytes()),
        limits: far_limits(),
        outbound: Some(server.clone()),
        ..call("/")
    }
}

/// Waits for its channel for ever.
fn waits(script: Script) -> Script {
    let script = script
        .store(word!(wait_nanoseconds), u64::MAX)
        .store(word!(wait_for), Waits::of(CHANNEL).word())
        .progress();
    let from = script.here();
    script.ring(Doorbell::Wait).for_ever_from(from)
}

pub async fn every_invalid_outbound_call_ends_the_guest(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    let ring = CHANNEL.to_host().size();
    let new = Script::new;
    let begun = || is_taken(begins(new(), 0));
    let length = request().len() as u32;
    let lies = [
        ("two turns ahead", new().store(turn(), 2)),
        ("a turn without end", new().store(turn(), u64::MAX)),
        (
            "a turn that goes back",
            begun()
                .store(written(), 0)
                .store(head(), 0)
                .store(turn(), 1)
                .progress()
                .step(Op::Until, said(offset_of!(ChannelWords, turn)), 1, 0)
                .store(turn(), 0),
        ),
        ("a head taken back", begun().store(head(), 0)),
        ("a second head", begun().store_pair(head(), length + 1, 0)),
        (
            "a head that is none",
            new()
                .store(place(CHANNEL.to_host().area), u64::MAX)
                .store(written(), 100)
                .store_pair(head(), 100, 0),
        ),
        ("a head without bytes", new().store_pair(head(), 100, 0)),
        (
            "too long a head",
            new()
                .store(written(), HEAD_MAX + 1)
                .store_pair(head(), HEAD_MAX as u32 + 1, 0),
        ),
        ("more than the ring", new().store(written(), ring + 1)),
        ("without end", new().store(written(), u64::MAX)),
        (
            "too long a tail",
            begun().store_pair(head(), length, ChannelWords::end_with(TAIL_MAX as u32 + 1)),
        ),
        (
            "read what is not there",
            new().store(told(offset_of!(ChannelWords, read)), 1),
        ),
    ];
    for (what, script) in lies {
        let server = Arc::new(Server::silent());
        match field.send(order(&waits(script), &server)).await {
            Err(InvokeError::GuestFailed(_)) => {}
            other => panic!("{what}: {other:?}"),
        }
        assert_eq!(server.under_way.load(Ordering::SeqCst), 0, "{what}");
        field.other_functions_are_unaffected().await;
        assert!(!field.is_warm(), "{what}");
    }
    field.nothing_is_left().await;
}

pub async fn a_body_without_a_head_is_ignored(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    let server = Arc::new(Server::silent());
    let script = Script::new().store(written(), 100).store_pair(head(), 0, 1);
    // The guest waits for bytes that no peer sends, so the wait counts as its own time.
    let script = script
        .progress()
        .store(word!(wait_nanoseconds), u64::MAX)
        .store(word!(wait_for), Waits::bytes(CHANNEL).word())
        .progress();
    let from = script.here();
    let script = script.ring(Doorbell::Wait).for_ever_from(from);
    let order = InvocationRequest {
        limits: short_limits(),
        ..order(&script, &server)
    };
    match field.send(order).await {
        Err(InvokeError::TimedOut(_)) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(server.begun.load(Ordering::SeqCst), 0);
    field.nothing_is_left().await;
}

pub async fn a_flood_of_dropped_calls_leaves_none_behind(bench: &Bench) {
    const COUNT: u64 = 20;
    let field = Battlefield::new(bench).await;
    let server = Arc::new(Server::silent());
    let mut script = Script::new();
    for number in 0..COUNT {
        script = is_taken(begins(script, number as u32 % 2))
            .store(turn(), number + 1)
            .store(written(), 0)
            .store(head(), 0)
            .progress()
            .step(
                Op::Until,
                said(offset_of!(ChannelWords, turn)),
                number + 1,
                0,
            );
    }
    // The last request is under way when the guest reports that it is done.
    let script = is_taken(begins(script, 0)).head().end().done();
    let answered = field.send(order(&script, &server)).await;
    assert_eq!(answered.unwrap(), b"");
    assert_eq!(server.begun.load(Ordering::SeqCst), COUNT as usize + 1);
    assert_eq!(server.under_way.load(Ordering::SeqCst), 0);
    field.nothing_is_left().await;
}

pub async fn channels_of_absent_services_are_ignored(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    // The node does not read the guest's words about a channel that is not open.
    let script = begins(Script::new().store(turn(), 7), 0).store(written(), u64::MAX);
    let answered = field.ends(&script.head().end().done()).await;
    assert_eq!(answered.unwrap(), b"");
    field.nothing_is_left().await;
}
