use std::{
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll},
};

use faasw_pool::BacklogLimits;
use http::{Request, Response};
use tokio::{
    io::{
        AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex,
    },
    sync::{Mutex, Notify, mpsc},
    task::JoinHandle,
};

use super::*;
use crate::{
    message::{Body, Correlation},
    server::bodies::RequestBodyStream,
};

/// Descriptors from this number on are reserved.
const WATERMARK: RawFd = 50;

/// The node's end of a connection, which counts while it is open.
struct Counted {
    stream: DuplexStream,
    open: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Accepts the connections of the test, one after the other.
struct Script {
    accepted: Mutex<mpsc::UnboundedReceiver<io::Result<Accepted<Counted>>>>,
    asked: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    /// The most connections that were open at once.
    most_open: Arc<AtomicUsize>,
}

impl Listener for Script {
    type Connection = Counted;

    async fn accept(&self) -> io::Result<Accepted<Counted>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.accepted.lock().await.recv().await {
            Some(accepted) => {
                let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
                self.most_open.fetch_max(open, Ordering::Relaxed);
                accepted
            }
            // The kernel keeps reporting the error.
            None => Err(rustix::io::Errno::MFILE.into()),
        }
    }
}

/// Answers `/busy` only after `go`.
#[derive(Clone, Default)]
struct Answers {
    busy: Arc<Notify>,
    go: Arc<Notify>,
}

impl Handler for Answers {
    async fn answer(self, request: Request<RequestBodyStream>, _: Correlation) -> Response<Body> {
        if request.uri().path() == "/busy" {
            self.busy.notify_one();
            self.go.notified().await;
        }
        Response::new(Body::default())
    }
}

struct Served {
    accept: mpsc::UnboundedSender<io::Result<Accepted<Counted>>>,
    asked: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    most_open: Arc<AtomicUsize>,
    answers: Answers,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Served {
    fn start() -> Self {
        Self::start_with(Limits::default())
    }

    fn start_with(limits: Limits) -> Self {
        let (accept, accepted) = mpsc::unbounded_channel();
        let asked = Arc::<AtomicUsize>::default();
        let (open, most_open) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let script = Script {
            accepted: Mutex::new(accepted),
            asked: asked.clone(),
            open: open.clone(),
            most_open: most_open.clone(),
        };
        let (answers, stop) = (Answers::default(), watch::Sender::new(false));
        let limits = (limits, Proxies::default(), WATERMARK);
        let backlog = Backlog::new(BacklogLimits::default());
        let serving = serve(script, answers.clone(), limits, backlog, stop.subscribe());
        Self {
            accept,
            asked,
            open,
            most_open,
            answers,
            stop,
            serving: tokio::spawn(serving),
        }
    }

    /// Returns a client whose connection gets this descriptor.
    fn connect(&self, descriptor: RawFd) -> DuplexStream {
        let (ours, stream) = duplex(4096);
        let connection = Counted {
            stream,
            open: self.open.clone(),
        };
        let accepted = Accepted {
            connection,
            address: None,
            descriptor,
        };
        assert!(self.accept.send(Ok(accepted)).is_ok());
        ours
    }

    fn fail(&self, errno: rustix::io::Errno) {
        assert!(self.accept.send(Err(errno.into())).is_ok());
    }

    async fn end(self) {
        self.stop.send_replace(true);
        self.answers.go.notify_waiters();
        self.serving.await.unwrap();
    }
}

async fn ask(client: &mut DuplexStream, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
}

/// Whether the client is answered. It is not if its connection is closed.
async fn is_served(client: &mut DuplexStream, path: &str) -> bool {
    ask(client, path).await;
    let mut status = [0; 12];
    client.read_exact(&mut status).await.is_ok() && status.ends_with(b"200")
}

async fn is_closed(client: &mut DuplexStream) -> bool {
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.is_ok()
}

#[tokio::test]
async fn beyond_the_watermark_an_idle_connection_makes_room_for_a_new_one() {
    let served = Served::start();
    let mut idle = served.connect(WATERMARK - 1);
    assert!(is_served(&mut idle, "/").await);
    let mut new = served.connect(WATERMARK);
    assert!(is_served(&mut new, "/").await);
    assert!(is_closed(&mut idle).await);
    drop(new);
    served.end().await;
}

#[tokio::test]
async fn beyond_the_watermark_a_new_connection_is_closed_if_all_others_are_busy() {
    let served = Served::start();
    let mut busy = served.connect(WATERMARK - 1);
    ask(&mut busy, "/busy").await;
    served.answers.busy.notified().await;
    for descriptor in [WATERMARK, WATERMARK + 7] {
        let mut new = served.connect(descriptor);
        assert!(is_closed(&mut new).await);
    }
    served.answers.go.notify_one();
    let mut status = [0; 12];
    busy.read_exact(&mut status).await.unwrap();
    drop(busy);
    served.end().await;
}

#[tokio::test(start_paused = true)]
async fn without_any_file_a_connection_is_accepted_with_the_spare_and_accepting_never_spins() {
    let served = Served::start();
    for errno in [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE] {
        served.fail(errno);
        let mut client = served.connect(WATERMARK - 1);
        assert!(is_served(&mut client, "/").await);
    }
    // From now on no descriptor is free, whatever is closed.
    let before = served.asked.load(Ordering::Relaxed);
    let Served {
        accept,
        asked,
        stop,
        serving,
        ..
    } = served;
    drop(accept);
    let rests = 20;
    tokio::time::sleep(REST * rests).await;
    let asked = asked.load(Ordering::Relaxed) - before;
    assert!(asked <= rests as usize + 3, "{asked}");
    stop.send_replace(true);
    serving.await.unwrap();
}

#[tokio::test]
async fn evicted_connections_close_before_a_burst_is_accepted_to_its_end() {
    const MOST: usize = 4;
    let served = Served::start_with(Limits {
        connections: MOST,
        ..Limits::default()
    });
    let mut burst: Vec<_> = (0..100).map(|_| served.connect(WATERMARK - 1)).collect();
    let mut last = burst.pop().unwrap();
    assert!(is_served(&mut last, "/").await);
    let most_open = served.most_open.load(Ordering::Relaxed);
    assert!(most_open <= 2 * MOST, "{most_open} were open at once");
    drop(burst);
    served.end().await;
}
