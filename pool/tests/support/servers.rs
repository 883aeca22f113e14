//! Servers in memory, for functions that make outbound calls.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use faasw_pool::outgoing::{Answer, Failure, FailureCode};
use faasw_pool::{AnswerPart, Outbound, OutgoingCall, OutgoingRequest, ResponseHead};
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;

/// Bytes of a request's body that a server buffers before they are read.
const ROOM: usize = 8 << 10;

/// The handler of a server's requests.
type Serving = dyn Fn(Conversation) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

/// A server, and the number of requests that it received.
pub struct Server {
    serve: Box<Serving>,
    pub begun: AtomicUsize,
    pub under_way: Arc<AtomicUsize>,
    pub is_let_go: Arc<Notify>,
    /// Whether its handler continues after the request is dropped.
    is_stubborn: bool,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Server")
    }
}

/// A request, as its server sees it.
pub struct Conversation {
    pub request: OutgoingRequest,
    inbox: Arc<Inbox>,
    answers: mpsc::Sender<AnswerPart>,
}

#[derive(Default)]
struct Inbox {
    received: Mutex<ReceivedBody>,
    has_more: Notify,
}

#[derive(Default)]
struct ReceivedBody {
    bytes: Vec<u8>,
    tail: Option<Vec<u8>>,
    waker: Option<Waker>,
}

struct ServedCall {
    inbox: Arc<Inbox>,
    answers: mpsc::Receiver<AnswerPart>,
    task: Option<AbortHandle>,
    under_way: Arc<AtomicUsize>,
    is_let_go: Arc<Notify>,
}

impl Server {
    pub fn new<F>(serve: impl Fn(Conversation) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self {
            serve: Box::new(move |conversation| Box::pin(serve(conversation))),
            begun: AtomicUsize::new(0),
            under_way: Arc::default(),
            is_let_go: Arc::default(),
            is_stubborn: false,
        }
    }

    /// Makes a server whose handler continues after the request is dropped.
    pub fn stubborn<F>(serve: impl Fn(Conversation) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self {
            is_stubborn: true,
            ..Self::new(serve)
        }
    }

    /// Makes a server that answers each request with its path.
    pub fn of_paths() -> Self {
        Self::new(|mut conversation| async move {
            let path = conversation.request.head.path_and_query.clone();
            conversation.answer(&path).await;
        })
    }

    /// Makes a server that never answers.
    pub fn silent() -> Self {
        Self::new(|conversation| async move {
            let _held = conversation;
            std::future::pending().await
        })
    }
}

impl Outbound for Server {
    fn begin(&self, request: OutgoingRequest) -> Box<dyn OutgoingCall> {
        let inbox = Arc::<Inbox>::default();
        let (sender, answers) = mpsc::channel(1);
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let serving = tokio::spawn((self.serve)(Conversation {
            request,
            inbox: inbox.clone(),
            answers: sender,
        }));
        Box::new(ServedCall {
            inbox,
            answers,
            task: (!self.is_stubborn).then(|| serving.abort_handle()),
            under_way: self.under_way.clone(),
            is_let_go: self.is_let_go.clone(),
        })
    }
}

impl OutgoingCall for ServedCall {
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        let mut received = self.inbox.received.lock().unwrap();
        match ROOM.saturating_sub(received.bytes.len()) {
            0 => {
                received.waker = Some(context.waker().clone());
                Poll::Pending
            }
            room => Poll::Ready(room),
        }
    }

    fn send(&mut self, body: Bytes) {
        let mut received = self.inbox.received.lock().unwrap();
        received.bytes.extend_from_slice(&body);
        assert!(received.bytes.len() <= ROOM && received.tail.is_none());
        self.inbox.has_more.notify_one();
    }

    fn end(&mut self, tail: Vec<u8>) {
        let mut received = self.inbox.received.lock().unwrap();
        assert!(received.tail.replace(tail).is_none());
        self.inbox.has_more.notify_one();
    }

    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<AnswerPart> {
        self.answers.poll_recv(context).map(|part| {
            let ended = Failure::new(FailureCode::ConnectionTerminated);
            part.unwrap_or(AnswerPart::Failed(ended))
        })
    }
}

impl Drop for ServedCall {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        self.is_let_go.notify_one();
    }
}

impl Conversation {
    /// Returns some of the request's body; `None` at its end.
    pub async fn body(&mut self) -> Option<Vec<u8>> {
        loop {
            {
                let mut received = self.inbox.received.lock().unwrap();
                if !received.bytes.is_empty() {
                    if let Some(waker) = received.waker.take() {
                        waker.wake();
                    }
                    return Some(std::mem::take(&mut received.bytes));
                }
                if received.tail.is_some() || self.request.is_whole {
                    return None;
                }
            }
            self.inbox.has_more.notified().await;
        }
    }

    /// Returns the tail of the request, after its end was seen.
    pub fn tail(&self) -> Vec<u8> {
        let received = self.inbox.received.lock().unwrap();
        received.tail.clone().unwrap_or_default()
    }

    /// Sends a part of the answer. Returns whether the receiver still exists.
    pub async fn say(&self, part: AnswerPart) -> bool {
        self.answers.send(part).await.is_ok()
    }

    pub async fn head(&self) -> bool {
        let head = ResponseHead {
            status: 200,
            headers: Vec::new(),
        };
        let head = Answer::Response(head).encode();
        self.say(AnswerPart::Head(head.into())).await
    }

    /// Answers with this body.
    pub async fn answer(&mut self, body: &[u8]) -> bool {
        self.head().await
            && self
                .say(AnswerPart::Data(Bytes::copy_from_slice(body)))
                .await
            && self.say(AnswerPart::End(Bytes::new())).await
    }
}
