//! A spawner whose process is the test itself, at the other end of its socket.

use super::*;

/// 10 s: far longer than any step takes, so that only a step that never ends fails a test.
const GIVE_UP: Duration = Duration::from_secs(10);

/// The other end of a spawner's socket.
struct Peer {
    socket: AsyncFd<OwnedFd>,
    /// Closed when the spawner's process has ended.
    _life: OwnedFd,
}

fn connect() -> (Arc<Spawner>, Peer) {
    let (ours, theirs) = faasw_fri::pair().unwrap();
    let (running, life) = faasw_fri::pair().unwrap();
    let groups = Arc::new(GroupAccount::new(0, 0));
    let running = SpawnerProcess::Launched(running);
    let spawner = Spawner::connect(ours, running, Arc::default(), groups).unwrap();
    let socket = watch(theirs).unwrap();
    let peer = Peer {
        socket,
        _life: life,
    };
    (spawner, peer)
}

impl Peer {
    fn send<M: Message>(&self, message: &M) {
        send(self.socket.get_ref(), message, &[], SendFlags::DONTWAIT).unwrap();
    }

    async fn receive(&self) -> io::Result<Packet> {
        let received = self.socket.async_io(Interest::READABLE, |socket| {
            receive(socket, RecvFlags::DONTWAIT).map_err(into_io)
        });
        timeout(GIVE_UP, received).await.unwrap()
    }
}

#[tokio::test]
async fn a_request_that_was_never_sent_leaves_no_record() {
    let (spawner, peer) = connect();
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
    let (spawner, peer) = connect();
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
