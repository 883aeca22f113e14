//! A spawner whose process is a test, at the other end of its socket.

use super::*;

/// 10 s: far longer than any step takes, so that only a step that never ends fails a test.
pub const GIVE_UP: Duration = Duration::from_secs(10);

/// The other end of the spawner's socket.
#[derive(Debug)]
pub struct FakeSpawner {
    socket: AsyncFd<OwnedFd>,
    /// Closed when the spawner's process has ended.
    _life: OwnedFd,
}

impl Spawner {
    /// Returns a spawner, and the stand-in for its process.
    pub fn fake() -> (Arc<Self>, FakeSpawner) {
        let (ours, theirs) = faasw_fri::pair().unwrap();
        let (running, life) = faasw_fri::pair().unwrap();
        let groups = Arc::new(GroupAccount::new(0, 0));
        let running = SpawnerProcess::Launched(running);
        let spawner = Self::connect(ours, running, Arc::default(), groups).unwrap();
        let socket = watch(theirs).unwrap();
        let peer = FakeSpawner {
            socket,
            _life: life,
        };
        (spawner, peer)
    }
}

impl FakeSpawner {
    /// Sends a message to the node.
    pub fn send<M: Message>(&self, message: &M) {
        send(self.socket.get_ref(), message, &[], SendFlags::DONTWAIT).unwrap();
    }

    /// Receives an order of the node.
    pub async fn receive(&self) -> io::Result<Packet> {
        let received = self.socket.async_io(Interest::READABLE, |socket| {
            receive(socket, RecvFlags::DONTWAIT).map_err(into_io)
        });
        timeout(GIVE_UP, received).await.unwrap()
    }
}
