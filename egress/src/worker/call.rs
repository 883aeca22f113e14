//! A call, from its head to its end.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use faasw_abi::outgoing::{Answer, Failure, FailureCode, OutgoingHead, Tail, Timeouts};
use http::Response;
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::body::{RequestBody, Source};
use super::connection::Connection;
use super::request::RequestHead;
use super::{RequestPart, Worker, failure, idle, response};
use crate::credit::Credit;
use crate::frames::{FRAME_MAX, FromWorker};

/// How often a request is tried that was sent on a connection which turned out to be closed.
const ATTEMPTS: usize = 2;

/// Does a call, and says what came of it.
pub async fn run(
    worker: Rc<Worker>,
    number: u64,
    head: Bytes,
    parts: mpsc::UnboundedReceiver<RequestPart>,
    credit: Rc<Credit>,
) {
    let call = Call {
        worker: &worker,
        number,
        credit: &credit,
    };
    match call.answer(&head, parts).await {
        Err(failure) => {
            let failed = Answer::Failed(bounded(failure)).encode();
            worker.say(number, FromWorker::Failed, &failed);
        }
        Ok(answered) => {
            let tail = match call.relay(answered).await {
                Ok(tail) => tail,
                Err(failure) => Tail::Failed(bounded(failure)).encode(),
            };
            worker.say(number, FromWorker::End, &tail);
        }
    }
    worker.calls.borrow_mut().remove(&number);
}

/// Most bytes of a failure's text.
const TEXT_MAX: usize = 256;

/// A failure whose text, which may be an upstream's, has room in a frame.
fn bounded(mut failure: Failure) -> Failure {
    failure.text = failure.text.map(|text| {
        let text = String::from_utf8_lossy(&text);
        let end = text.floor_char_boundary(TEXT_MAX);
        text.split_at(end).0.as_bytes().to_vec()
    });
    failure
}

struct Call<'a> {
    worker: &'a Rc<Worker>,
    number: u64,
    credit: &'a Credit,
}

/// An answer whose head has been passed on.
struct Answered {
    head: RequestHead,
    source: Rc<Source>,
    connection: Connection,
    body: Incoming,
    between_bytes: Duration,
}

/// The moment after that time; a far one where it is further than any clock goes.
fn after(nanoseconds: u64) -> Instant {
    const FAR: Duration = Duration::from_secs(86_400 * 365);
    Instant::now() + Duration::from_nanos(nanoseconds).min(FAR)
}

impl Call<'_> {
    /// Sends the request, and passes the head of its answer on.
    async fn answer(
        &self,
        head: &[u8],
        parts: mpsc::UnboundedReceiver<RequestPart>,
    ) -> Result<Answered, Failure> {
        let head = OutgoingHead::decode(head);
        let head = head.map_err(|_| Failure::new(FailureCode::InternalError))?;
        let timeouts = self.worker.options.of_request(head.timeouts);
        let head = RequestHead::new(&head)?;
        let source = Source::new(self.worker, self.number, parts, head.declared);
        let (connection, response) = self.exchange(&head, &source, timeouts).await?;
        source.look_behind()?;
        let (parts, body) = response.into_parts();
        let bytes = response::head(&parts)?;
        self.worker.say(self.number, FromWorker::Head, &bytes);
        Ok(Answered {
            head,
            source,
            connection,
            body,
            between_bytes: Duration::from_nanos(timeouts.between_bytes),
        })
    }

    async fn exchange(
        &self,
        head: &RequestHead,
        source: &Rc<Source>,
        timeouts: Timeouts,
    ) -> Result<(Connection, Response<Incoming>), Failure> {
        for attempt in 1.. {
            let pooled = match attempt {
                1 => self.worker.idle.take(&head.destination),
                _ => None,
            };
            let is_pooled = pooled.is_some();
            let mut connection = match pooled {
                Some(connection) => connection,
                None => self.connect(head, timeouts.connect).await?,
            };
            source.settle().await;
            let request = head.request(RequestBody(source.clone()), &source.trailer_names());
            source.goes_behind(&request);
            let answer = connection.send(request);
            let answer = timeout_at(after(timeouts.first_byte), answer).await;
            let late = |_| Failure::new(FailureCode::ConnectionReadTimeout);
            let failed = match answer.map_err(late)? {
                Ok(response) => return Ok((connection, response)),
                Err(failed) => failed,
            };
            // A server may close an idle connection while a request is on its way to it.
            let can_be_repeated = failed.is_unsent || head.is_idempotent();
            let is_closed_idle = is_pooled && !failed.has_answer && source.is_untouched();
            if attempt == ATTEMPTS || !is_closed_idle || !can_be_repeated {
                return Err(source.failure().unwrap_or(failed.failure));
            }
        }
        Err(Failure::new(FailureCode::InternalError))
    }

    async fn connect(&self, head: &RequestHead, nanoseconds: u64) -> Result<Connection, Failure> {
        let connect = async {
            let stream = self.worker.connection(self.number).await?;
            Connection::new(stream, &head.destination, &self.worker.tls).await
        };
        let late = |_| Failure::new(FailureCode::ConnectionTimeout);
        timeout_at(after(nanoseconds), connect)
            .await
            .map_err(late)?
    }

    /// Passes the body of an answer on; its tail.
    async fn relay(&self, answered: Answered) -> Result<Vec<u8>, Failure> {
        let Answered {
            head,
            source,
            connection,
            mut body,
            between_bytes,
        } = answered;
        let mut tail = Tail::Trailers(Vec::new()).encode();
        loop {
            let frame =
                std::future::poll_fn(|context| std::pin::Pin::new(&mut body).poll_frame(context));
            let late = |_| Failure::new(FailureCode::ConnectionReadTimeout);
            let frame = tokio::time::timeout(between_bytes, frame)
                .await
                .map_err(late)?;
            let Some(frame) = frame else {
                break;
            };
            let frame = frame.map_err(|error| {
                source
                    .failure()
                    .unwrap_or_else(|| failure::of_http(&error, true))
            })?;
            match frame.into_data() {
                Ok(data) => self.send(data).await,
                Err(frame) => {
                    if let Some(trailers) = frame.trailers_ref() {
                        tail = response::tail(trailers)?;
                    }
                }
            }
        }
        source.look_behind()?;
        // An answer that comes before its request is all there leaves the rest unsent.
        if source.is_done() {
            idle::keep(self.worker.clone(), head.destination, connection).await;
        }
        Ok(tail)
    }

    /// Sends data as it may be sent. The upstream waits meanwhile, by its own window.
    async fn send(&self, mut data: Bytes) {
        while !data.is_empty() {
            if self.credit.wait().await.is_none() {
                return;
            }
            let taken = self.credit.take(data.len().min(FRAME_MAX));
            let piece = data.split_to(taken);
            self.worker.say(self.number, FromWorker::Data, &piece);
        }
    }
}
