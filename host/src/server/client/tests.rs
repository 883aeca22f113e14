use super::*;
use faasw_pool::{Account, Backlog, BacklogLimits};
use tokio::time::advance;

const PATIENCE: Patience = Patience {
    head: Duration::from_secs(5),
    idle: Duration::from_secs(60),
    stalled: Duration::from_secs(30),
};
const MOST: u64 = u64::MAX;

pub(in crate::server) fn client() -> Arc<Client> {
    Client::new(Backlog::new(BacklogLimits::default()).connection())
}

impl Client {
    pub(in crate::server) fn look_at_once(&self) -> Verdict {
        look(self)
    }
}

fn look(client: &Client) -> Verdict {
    client.look(Instant::now(), &PATIENCE)
}

fn closes(client: &Client, why: &str) -> bool {
    matches!(look(client), Verdict::Closes(reason) if reason.contains(why))
}

#[tokio::test(start_paused = true)]
async fn a_head_must_come_within_its_time() {
    let client = client();
    advance(PATIENCE.head - Duration::from_millis(1)).await;
    client.sent(1);
    assert_eq!(look(&client), Verdict::Stays);
    advance(Duration::from_millis(1)).await;
    assert!(closes(&client, "head"));
    drop(client.begin(true, 10));
    client.flushed();
    assert_eq!(look(&client), Verdict::Stays);
    // The next one has its time from its first byte on, however many follow.
    advance(PATIENCE.head * 2).await;
    assert_eq!(look(&client), Verdict::Stays);
    for _ in 0..5 {
        client.sent(1);
        assert_eq!(look(&client), Verdict::Stays);
        advance(PATIENCE.head / 5).await;
    }
    assert!(closes(&client, "head"));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_stalled_and_one_that_waits_is_not() {
    let client = client();
    let request = client.begin(false, 10);
    advance(Duration::from_secs(600)).await;
    assert_eq!(look(&client), Verdict::Stays, "nothing was given to it yet");
    request.gives();
    advance(PATIENCE.stalled).await;
    assert!(closes(&client, "takes nothing"));
    request.takes();
    assert_eq!(look(&client), Verdict::Stays);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_stream_does_not_end_those_that_move() {
    let client = client();
    let [stalled, moving] = [1, 2].map(|_| client.begin(false, 10));
    stalled.gives();
    for _ in 0..20 {
        moving.gives();
        advance(PATIENCE.stalled / 4).await;
        assert_eq!(look(&client), Verdict::Stays);
        assert_eq!(client.standing(), Standing::Owing, "both are slow");
        moving.takes();
        look(&client);
        assert_eq!(client.standing(), Standing::Busy);
    }
    moving.gives();
    advance(PATIENCE.stalled).await;
    assert!(closes(&client, "takes nothing"));
    // An upload on another stream is something that moves, and so is a function at work.
    let uploading = client.begin(false, 10);
    let mut receiving = uploading.receives();
    receiving.consumed(1);
    assert_eq!(look(&client), Verdict::Stays);
    advance(PATIENCE.stalled).await;
    assert!(closes(&client, "takes nothing"));
    let _asking = client.begin(false, 10);
    assert_eq!(look(&client), Verdict::Stays);
    assert_eq!(
        client.standing(),
        Standing::Owing,
        "it may give way all the same"
    );
}

#[tokio::test(start_paused = true)]
async fn who_was_told_of_the_end_has_time_to_take_the_rest_and_for_nothing_else() {
    let client = client();
    let request = client.begin(false, 10);
    client.finish();
    advance(FAREWELL * 3).await;
    assert_eq!(look(&client), Verdict::Stays);
    drop(request);
    advance(FAREWELL / 2).await;
    assert_eq!(
        look(&client),
        Verdict::Stays,
        "its last bytes are on their way"
    );
    let late = client.begin(false, 10);
    assert!(client.backlog.is_closed(), "it does not listen");
    drop(late);
}

#[tokio::test(start_paused = true)]
async fn what_is_given_and_not_taken_for_a_while_owes() {
    let client = client();
    assert_eq!(client.standing(), Standing::New);
    let request = client.begin(false, 10);
    assert_eq!(client.standing(), Standing::Busy);
    request.gives();
    advance(SLOW / 2).await;
    look(&client);
    assert_eq!(client.standing(), Standing::Busy);
    advance(SLOW / 2).await;
    look(&client);
    assert_eq!(client.standing(), Standing::Owing);
    // Asking for more does not change that, taking does.
    let other = client.begin(false, 10);
    look(&client);
    assert_eq!(client.standing(), Standing::Owing);
    request.takes();
    look(&client);
    assert_eq!(client.standing(), Standing::Busy);
    drop((request, other));
    assert_eq!(client.standing(), Standing::Idle);
}

#[tokio::test(start_paused = true)]
async fn a_slow_download_of_http1_is_not_idle() {
    let client = client();
    drop(client.begin(true, 10));
    // All of it was made; the socket takes a little now and then.
    for _ in 0..10 {
        client.took(1000);
        client.blocks();
        advance(PATIENCE.stalled - Duration::from_secs(1)).await;
        assert_eq!(look(&client), Verdict::Stays);
        assert_eq!(client.standing(), Standing::Owing);
    }
    client.took(1000);
    look(&client);
    assert_eq!(client.standing(), Standing::Busy);
    client.flushed();
    assert_eq!(client.standing(), Standing::Idle);
    advance(PATIENCE.idle - Duration::from_secs(1)).await;
    assert_eq!(look(&client), Verdict::Stays);
    advance(Duration::from_secs(1)).await;
    assert!(matches!(look(&client), Verdict::Finishes(_)));
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_takes_nothing_is_stalled() {
    let client = client();
    drop(client.begin(true, 10));
    client.blocks();
    advance(PATIENCE.stalled / 2).await;
    // What is flushed after all begins anew.
    client.flushed();
    drop(client.begin(true, 10));
    client.blocks();
    advance(PATIENCE.stalled / 2).await;
    client.blocks();
    assert_eq!(look(&client), Verdict::Stays);
    advance(PATIENCE.stalled / 2).await;
    assert!(closes(&client, "takes nothing"));
}

/// Of HTTP/2 a response may still wait for its window when nobody serves it any more.
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_window_is_not_idle_while_it_goes() {
    let backlog = Backlog::new(BacklogLimits::default());
    let client = Client::new(backlog.connection());
    let account = Account::new(backlog.function(), client.backlog.clone());
    let mut pieces: Vec<_> = (0..4).map(|_| account.try_lease(1000).unwrap()).collect();
    drop(client.begin(false, 10));
    look(&client);
    while pieces.len() > 1 {
        advance(PATIENCE.idle - Duration::from_secs(1)).await;
        pieces.pop();
        assert_eq!(look(&client), Verdict::Stays);
        assert_eq!(client.standing(), Standing::Busy);
    }
    advance(SLOW).await;
    look(&client);
    assert_eq!(client.standing(), Standing::Owing);
    advance(PATIENCE.idle).await;
    assert!(matches!(look(&client), Verdict::Finishes(_)));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_for_nothing_more_is_idle_whatever_it_sends() {
    let client = client();
    drop(client.begin(false, 10));
    advance(PATIENCE.idle / 2).await;
    client.sent(17);
    assert_eq!(look(&client), Verdict::Stays);
    advance(PATIENCE.idle / 2).await;
    assert!(matches!(look(&client), Verdict::Finishes(_)));
    // One that does not listen is not waited for.
    client.finish();
    client.finished().await;
    assert_eq!(look(&client), Verdict::Stays);
    advance(FAREWELL).await;
    assert!(closes(&client, "hear"));
}

#[tokio::test]
async fn what_it_has_sent_and_was_made_for_it_counts_until_it_is_gone() {
    let client = client();
    client.sent(1000);
    assert_eq!(client.unread(MOST), 1000);
    assert_eq!(client.unread(900), 900);
    let first = client.begin(false, 10);
    assert_eq!(client.unread(MOST), 0);
    let mut receiving = first.receives();
    assert_eq!(client.standing(), Standing::Owing);
    client.sent(500);
    let second = client.begin(false, 100);
    assert_eq!(client.standing(), Standing::Busy, "the second has no body");
    receiving.consumed(300);
    assert_eq!(client.unread(MOST), 100);
    client.is_answered(70).await;
    assert_eq!(client.backlog.held(), 70);
    client.flushed();
    assert_eq!(client.backlog.held(), 0);
    drop((first, second, receiving));
    assert_eq!(client.standing(), Standing::Idle);
}

#[tokio::test]
async fn framing_does_not_add_up() {
    let client = client();
    let request = client.begin(false, 10);
    let mut receiving = request.receives();
    client.sent(109);
    client.has_sent_all();
    assert_eq!(client.unread(MOST), 109, "nobody has read it");
    receiving.consumed(100);
    client.has_sent_all();
    assert_eq!(client.unread(MOST), 9, "there may be more of it");
    receiving.is_drained();
    client.has_sent_all();
    assert_eq!(client.unread(MOST), 0);
    client.sent(1009);
    receiving.consumed(500);
    client.has_sent_all();
    assert_eq!(client.unread(MOST), 509);
    // What is thrown away is not there any more.
    drop(receiving);
    client.has_sent_all();
    assert_eq!(client.unread(MOST), 0);
    // Nothing of HTTP/2 is a request's begin for long; of HTTP/1 it may be.
    drop(request);
    client.sent(17);
    client.has_sent_all();
    assert_eq!(client.unread(MOST), 0);
    drop(client.begin(true, 10));
    client.sent(17);
    client.has_sent_all();
    assert_eq!(client.unread(MOST), 17);
}

#[tokio::test]
async fn heads_of_many_responses_wait_for_those_before_them() {
    let client = client();
    client.is_answered(MOST_HEADS).await;
    let mut second = pin!(client.is_answered(MOST_HEADS));
    let soon = tokio::time::timeout(Duration::ZERO, second.as_mut());
    assert!(soon.await.is_err());
    let held = client.backlog.held();
    client.flushed();
    second.await;
    assert_eq!(client.backlog.held(), held);
}
