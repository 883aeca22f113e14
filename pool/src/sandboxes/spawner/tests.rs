//! Requests and orders that fail.

use super::fake_spawner::GIVE_UP;
use super::*;

#[tokio::test]
async fn a_request_that_was_never_sent_leaves_no_record() {
    let (spawner, peer) = Spawner::fake();
    let order = Kill { token: 0 };
    let fill = || send(spawner.socket.get_ref(), &order, &[], SendFlags::DONTWAIT);
    while fill().is_ok() {}
    let (one, other) = faasw_fri::pair().unwrap();
    let soon = Duration::from_millis(10);
    let made = timeout(soon, spawner.sandbox(&one, &other, false)).await;
    assert!(made.is_err() && spawner.records().is_empty());
    drop(peer);
}

#[tokio::test]
async fn a_spawner_that_breaks_the_protocol_is_ended_with_all_requests() {
    let (spawner, peer) = Spawner::fake();
    let (one, other) = faasw_fri::pair().unwrap();
    let making = spawner.sandbox(&one, &other, false);
    let breaking = async {
        let order = peer.receive().await.unwrap();
        assert_eq!(order.kind(), Some(Kind::SpawnSandbox));
        // A spawner never sends orders.
        peer.send(&Kill { token: 1 });
    };
    let (made, ()) = tokio::join!(timeout(GIVE_UP, making), breaking);
    assert!(matches!(made, Ok(Err(PlatformError::SpawnerGone))));
    assert!(spawner.is_gone() && spawner.records().is_empty());
    // The node still holds the spawner, and the spawner ends nevertheless.
    loop {
        match peer.receive().await {
            Ok(_) => {}
            Err(error) => break assert_eq!(error.kind(), io::ErrorKind::BrokenPipe),
        }
    }
}
