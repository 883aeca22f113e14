use super::*;
use faasw_pool::{Account, Backlog, BacklogLimits};
use tokio::time::advance;

const TIMEOUTS: PeerTimeouts = PeerTimeouts {
    head: Duration::from_secs(5),
    idle: Duration::from_secs(60),
    stalled: Duration::from_secs(30),
};
const MOST: u64 = u64::MAX;

pub(in crate::server) fn peer() -> Arc<Peer> {
    Peer::new(Backlog::new(BacklogLimits::default()).connection())
}

impl Peer {
    pub(in crate::server) fn check_at_once(&self) -> Verdict {
        check(self)
    }
}

fn check(peer: &Peer) -> Verdict {
    peer.check(Instant::now(), &TIMEOUTS)
}

fn closes(peer: &Peer, why: &str) -> bool {
    matches!(check(peer), Verdict::Closes(reason) if reason.contains(why))
}

#[tokio::test(start_paused = true)]
async fn a_head_must_come_within_its_time() {
    let peer = peer();
    advance(TIMEOUTS.head - Duration::from_millis(1)).await;
    peer.count_received(1);
    assert_eq!(check(&peer), Verdict::Stays);
    advance(Duration::from_millis(1)).await;
    assert!(closes(&peer, "head"));
    drop(peer.begin(true, 10));
    peer.note_flushed();
    assert_eq!(check(&peer), Verdict::Stays);
    // The next head has its time from its first byte on, however many bytes follow.
    advance(TIMEOUTS.head * 2).await;
    assert_eq!(check(&peer), Verdict::Stays);
    for _ in 0..5 {
        peer.count_received(1);
        assert_eq!(check(&peer), Verdict::Stays);
        advance(TIMEOUTS.head / 5).await;
    }
    assert!(closes(&peer, "head"));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_stalled_and_a_waiting_one_is_not() {
    let peer = peer();
    let request = peer.begin(false, 10);
    advance(Duration::from_secs(600)).await;
    assert_eq!(check(&peer), Verdict::Stays, "nothing was given to it yet");
    request.note_piece_given();
    advance(TIMEOUTS.stalled).await;
    assert!(closes(&peer, "does not read"));
    request.note_piece_taken();
    assert_eq!(check(&peer), Verdict::Stays);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_stream_does_not_end_those_that_move() {
    let peer = peer();
    let [stalled, moving] = [1, 2].map(|_| peer.begin(false, 10));
    stalled.note_piece_given();
    for _ in 0..20 {
        moving.note_piece_given();
        advance(TIMEOUTS.stalled / 4).await;
        assert_eq!(check(&peer), Verdict::Stays);
        assert_eq!(peer.value(), ConnectionValue::Owing, "both are slow");
        moving.note_piece_taken();
        check(&peer);
        assert_eq!(peer.value(), ConnectionValue::Busy);
    }
    moving.note_piece_given();
    advance(TIMEOUTS.stalled).await;
    assert!(closes(&peer, "does not read"));
    // An upload on another stream counts as progress, and so does a function at work.
    let uploading = peer.begin(false, 10);
    let mut receiving = uploading.begin_body();
    receiving.consumed(1);
    assert_eq!(check(&peer), Verdict::Stays);
    advance(TIMEOUTS.stalled).await;
    assert!(closes(&peer, "does not read"));
    let _asking = peer.begin(false, 10);
    assert_eq!(check(&peer), Verdict::Stays);
    assert_eq!(
        peer.value(),
        ConnectionValue::Owing,
        "it may be evicted all the same"
    );
}

#[tokio::test(start_paused = true)]
async fn a_finishing_client_may_only_read_the_rest() {
    let peer = peer();
    let request = peer.begin(false, 10);
    peer.finish();
    advance(FAREWELL * 3).await;
    assert_eq!(check(&peer), Verdict::Stays);
    drop(request);
    advance(FAREWELL / 2).await;
    assert_eq!(
        check(&peer),
        Verdict::Stays,
        "its last bytes are on their way"
    );
    let late = peer.begin(false, 10);
    assert!(peer.backlog.is_closed(), "it does not listen");
    drop(late);
}

#[tokio::test(start_paused = true)]
async fn an_unread_response_becomes_overdue() {
    let peer = peer();
    assert_eq!(peer.value(), ConnectionValue::New);
    let request = peer.begin(false, 10);
    assert_eq!(peer.value(), ConnectionValue::Busy);
    request.note_piece_given();
    advance(SLOW / 2).await;
    check(&peer);
    assert_eq!(peer.value(), ConnectionValue::Busy);
    advance(SLOW / 2).await;
    check(&peer);
    assert_eq!(peer.value(), ConnectionValue::Owing);
    // A further request does not change that; reading does.
    let other = peer.begin(false, 10);
    check(&peer);
    assert_eq!(peer.value(), ConnectionValue::Owing);
    request.note_piece_taken();
    check(&peer);
    assert_eq!(peer.value(), ConnectionValue::Busy);
    drop((request, other));
    assert_eq!(peer.value(), ConnectionValue::Idle);
}

#[tokio::test(start_paused = true)]
async fn a_slow_download_of_http1_is_not_idle() {
    let peer = peer();
    drop(peer.begin(true, 10));
    // The response was produced completely; the socket accepts a little now and then.
    for _ in 0..10 {
        peer.count_written(1000);
        peer.note_blocked();
        advance(TIMEOUTS.stalled - Duration::from_secs(1)).await;
        assert_eq!(check(&peer), Verdict::Stays);
        assert_eq!(peer.value(), ConnectionValue::Owing);
    }
    peer.count_written(1000);
    check(&peer);
    assert_eq!(peer.value(), ConnectionValue::Busy);
    peer.note_flushed();
    assert_eq!(peer.value(), ConnectionValue::Idle);
    advance(TIMEOUTS.idle - Duration::from_secs(1)).await;
    assert_eq!(check(&peer), Verdict::Stays);
    advance(Duration::from_secs(1)).await;
    assert!(matches!(check(&peer), Verdict::Finishes(_)));
}

#[tokio::test(start_paused = true)]
async fn a_blocked_socket_is_stalled() {
    let peer = peer();
    drop(peer.begin(true, 10));
    peer.note_blocked();
    advance(TIMEOUTS.stalled / 2).await;
    // A flush restarts the time.
    peer.note_flushed();
    drop(peer.begin(true, 10));
    peer.note_blocked();
    advance(TIMEOUTS.stalled / 2).await;
    peer.note_blocked();
    assert_eq!(check(&peer), Verdict::Stays);
    advance(TIMEOUTS.stalled / 2).await;
    assert!(closes(&peer, "does not read"));
}

/// An HTTP/2 response may still wait for its window after its handler has finished.
#[tokio::test(start_paused = true)]
async fn a_response_waiting_for_its_window_is_not_idle() {
    let backlog = Backlog::new(BacklogLimits::default());
    let peer = Peer::new(backlog.connection());
    let account = Account::new(backlog.function(), peer.backlog.clone());
    let mut pieces: Vec<_> = (0..4).map(|_| account.try_lease(1000).unwrap()).collect();
    drop(peer.begin(false, 10));
    check(&peer);
    while pieces.len() > 1 {
        advance(TIMEOUTS.idle - Duration::from_secs(1)).await;
        pieces.pop();
        assert_eq!(check(&peer), Verdict::Stays);
        assert_eq!(peer.value(), ConnectionValue::Busy);
    }
    advance(SLOW).await;
    check(&peer);
    assert_eq!(peer.value(), ConnectionValue::Owing);
    advance(TIMEOUTS.idle).await;
    assert!(matches!(check(&peer), Verdict::Finishes(_)));
}

#[tokio::test(start_paused = true)]
async fn a_client_without_requests_is_idle_whatever_it_sends() {
    let peer = peer();
    drop(peer.begin(false, 10));
    advance(TIMEOUTS.idle / 2).await;
    peer.count_received(17);
    assert_eq!(check(&peer), Verdict::Stays);
    advance(TIMEOUTS.idle / 2).await;
    assert!(matches!(check(&peer), Verdict::Finishes(_)));
    // A client that ignores the end is closed soon.
    peer.finish();
    peer.finished().await;
    assert_eq!(check(&peer), Verdict::Stays);
    advance(FAREWELL).await;
    assert!(closes(&peer, "notice"));
}

#[tokio::test]
async fn received_bytes_and_requests_count_until_released() {
    let peer = peer();
    peer.count_received(1000);
    assert_eq!(peer.unread(MOST), 1000);
    assert_eq!(peer.unread(900), 900);
    let first = peer.begin(false, 10);
    assert_eq!(peer.unread(MOST), 0);
    let mut receiving = first.begin_body();
    assert_eq!(peer.value(), ConnectionValue::Owing);
    peer.count_received(500);
    let second = peer.begin(false, 100);
    assert_eq!(
        peer.value(),
        ConnectionValue::Busy,
        "the second has no body"
    );
    receiving.consumed(300);
    assert_eq!(peer.unread(MOST), 100);
    peer.begin_response(70).await;
    assert_eq!(peer.backlog.held(), 70);
    peer.note_flushed();
    assert_eq!(peer.backlog.held(), 0);
    drop((first, second, receiving));
    assert_eq!(peer.value(), ConnectionValue::Idle);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_and_flushes_never_wrap_the_count() {
    let node = Backlog::new(BacklogLimits::default());
    let peer = Peer::new(node.connection());
    let answering = {
        let peer = peer.clone();
        tokio::spawn(async move {
            for _ in 0..200_000 {
                peer.begin_response(1).await;
            }
        })
    };
    while !answering.is_finished() {
        peer.note_flushed();
        // A count below zero would wrap to a very large one.
        assert!(node.held() <= MOST_HEADS && peer.backlog.held() <= MOST_HEADS);
    }
    answering.await.unwrap();
    peer.note_flushed();
    assert_eq!((node.held(), peer.backlog.held()), (0, 0));
}

#[tokio::test]
async fn framing_bytes_do_not_accumulate() {
    let peer = peer();
    let request = peer.begin(false, 10);
    let mut receiving = request.begin_body();
    peer.count_received(109);
    peer.note_all_processed();
    assert_eq!(peer.unread(MOST), 109, "nobody has read it");
    receiving.consumed(100);
    peer.note_all_processed();
    assert_eq!(peer.unread(MOST), 9, "there may be more of it");
    receiving.note_drained();
    peer.note_all_processed();
    assert_eq!(peer.unread(MOST), 0);
    peer.count_received(1009);
    receiving.consumed(500);
    peer.note_all_processed();
    assert_eq!(peer.unread(MOST), 509);
    // Discarded bytes have left memory.
    drop(receiving);
    peer.note_all_processed();
    assert_eq!(peer.unread(MOST), 0);
    // HTTP/2 bytes are not the start of a request for long; HTTP/1 bytes may be.
    drop(request);
    peer.count_received(17);
    peer.note_all_processed();
    assert_eq!(peer.unread(MOST), 0);
    drop(peer.begin(true, 10));
    peer.count_received(17);
    peer.note_all_processed();
    assert_eq!(peer.unread(MOST), 17);
}

#[tokio::test]
async fn heads_of_many_responses_wait_for_those_before_them() {
    let peer = peer();
    peer.begin_response(MOST_HEADS).await;
    let mut second = pin!(peer.begin_response(MOST_HEADS));
    let soon = tokio::time::timeout(Duration::ZERO, second.as_mut());
    assert!(soon.await.is_err());
    let held = peer.backlog.held();
    peer.note_flushed();
    second.await;
    assert_eq!(peer.backlog.held(), held);
}
