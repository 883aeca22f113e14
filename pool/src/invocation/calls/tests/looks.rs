//! The effects of one look, and for how long its result holds.

use super::*;

#[tokio::test]
async fn one_look_begins_a_bounded_number_of_calls() {
    let large = OutgoingHead {
        headers: vec![(b"a".into(), b"b".into()); 5000],
        ..request()
    };
    let mut guest = Guest::with(Scripted::default());
    guest.put_on_all(&large);
    for begun in 1..=CALLS {
        let work = guest.work().unwrap();
        assert_eq!((work.begun, work.fields), (1, 5000));
        assert_eq!(work.bytes, large.encode().len() as u64);
        let look_again = guest.calls.as_ref().unwrap().look_again();
        assert_eq!(look_again.is_some(), begun < CALLS);
    }
    // Small requests are begun at once.
    let mut guest = Guest::with(Scripted::default());
    guest.put_on_all(&request());
    assert_eq!(guest.look().unwrap(), CALLS as u64);
    assert_eq!(guest.calls.as_ref().unwrap().look_again(), None);
}

/// A guest that waits with a time limit goes on by itself after that, without notice.
#[tokio::test(start_paused = true)]
async fn a_wait_counts_as_upstream_time_up_to_its_own_limit() {
    let mut guest = Guest::with(Scripted::default());
    guest.words.wait_for = Waits::bytes(channel()).word();
    guest.begin(true).unwrap();
    let calls = guest.calls.as_ref().unwrap();
    assert!(calls.awaits_answers());
    assert_eq!(calls.awaits_answers_until(), None);
    guest.words.wait_nanoseconds = 1_000_000;
    guest.look().unwrap();
    let calls = guest.calls.as_ref().unwrap();
    let until = Instant::now() + Duration::from_millis(1);
    assert!(calls.awaits_answers());
    assert_eq!(calls.awaits_answers_until(), Some(until));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!calls.awaits_answers());
    assert_eq!(calls.awaits_answers_until(), None);
    // Until the guest rings to wait again.
    guest.look().unwrap();
    assert!(guest.calls.as_ref().unwrap().awaits_answers());
}

#[tokio::test]
async fn calls_begun_before_an_invalid_one_are_counted() {
    let mut guest = Guest::with(Scripted::default());
    let lying = Channel::calls().nth(1).unwrap();
    guest.words.channels[lying].turn = 7;
    assert!(guest.begin(true).is_err());
    assert!(guest.calls.as_ref().unwrap().has_begun());
}
