//! A call, from its head to its end.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use faasw_abi::outgoing::{Answer, Failure, FailureCode, OutgoingHead, Tail, Timeouts};
use http::response::Parts;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::body::BodySource;
use super::request::RequestHead;
use super::response::{self, BodyFrame};
use super::upstream_connection::{ResponseBody, UpstreamConnection};
use super::{RequestPart, Worker};
use crate::credit::Credit;
use crate::frames::{FRAME_MAX, FromWorker};

/// How many attempts a request gets if it was sent on an idle connection that turned out to be
/// closed.
const ATTEMPTS: usize = 2;

/// Performs a call, and reports its outcome.
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
            worker.send_frame(number, FromWorker::Failed, &failed);
        }
        Ok(answered) => {
            let tail = match call.relay(answered).await {
                Ok(tail) => tail,
                Err(failure) => Tail::Failed(bounded(failure)).encode(),
            };
            worker.send_frame(number, FromWorker::End, &tail);
        }
    }
    worker.calls.borrow_mut().remove(&number);
}

/// Most bytes of a failure's text.
const TEXT_MAX: usize = 256;

/// Cuts the failure's text, which may come from an upstream, so that it fits in a frame.
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

/// A response whose head has been passed on.
struct ResponseRelay {
    head: RequestHead,
    source: Rc<BodySource>,
    body: ResponseBody,
    between_bytes: Duration,
}

/// Returns the moment after that time, limited to one year because a clock may not represent more.
fn after(nanoseconds: u64) -> Instant {
    const FAR: Duration = Duration::from_secs(86_400 * 365);
    Instant::now() + Duration::from_nanos(nanoseconds).min(FAR)
}

impl Call<'_> {
    /// Sends the request, and passes the head of the response on.
    async fn answer(
        &self,
        head: &[u8],
        parts: mpsc::UnboundedReceiver<RequestPart>,
    ) -> Result<ResponseRelay, Failure> {
        let head = OutgoingHead::decode(head);
        let head = head.map_err(|_| Failure::new(FailureCode::InternalError))?;
        let timeouts = self.worker.options.of_request(head.timeouts);
        let head = RequestHead::new(&head)?;
        let source = BodySource::new(self.worker, self.number, parts, head.declared);
        let (parts, body) = self.exchange(&head, &source, timeouts).await?;
        source.check_trailers()?;
        let bytes = response::head(&parts)?;
        self.worker
            .send_frame(self.number, FromWorker::Head, &bytes);
        Ok(ResponseRelay {
            head,
            source,
            body,
            between_bytes: Duration::from_nanos(timeouts.between_bytes),
        })
    }

    async fn exchange(
        &self,
        head: &RequestHead,
        source: &Rc<BodySource>,
        timeouts: Timeouts,
    ) -> Result<(Parts, ResponseBody), Failure> {
        // A second attempt uses only a connection that was made after the first attempt had its
        // connection.
        let mut than = None;
        for attempt in 1.. {
            let find = UpstreamConnection::find(self.worker, self.number, head, than);
            let late = |_| Failure::new(FailureCode::ConnectionTimeout);
            let found = timeout_at(after(timeouts.connect), find).await;
            let (upstream, is_pooled) = found.map_err(late)??;
            than = Some(Instant::now());
            source.wait_for_first_part().await;
            let answer = upstream.send(head, source);
            let answer = timeout_at(after(timeouts.first_byte), answer).await;
            let late = |_| Failure::new(FailureCode::ConnectionReadTimeout);
            let failed = match answer.map_err(late)? {
                Ok(answered) => return Ok(answered),
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

    /// Passes the body of the response on, and returns its tail.
    async fn relay(&self, answered: ResponseRelay) -> Result<Vec<u8>, Failure> {
        let ResponseRelay {
            head,
            source,
            mut body,
            between_bytes,
        } = answered;
        let mut tail = Tail::Trailers(Vec::new()).encode();
        loop {
            let late = |_| Failure::new(FailureCode::ConnectionReadTimeout);
            let piece = tokio::time::timeout(between_bytes, body.next())
                .await
                .map_err(late)?;
            let Some(piece) = piece else {
                break;
            };
            match piece.map_err(|failure| source.failure().unwrap_or(failure))? {
                BodyFrame::Data(data) => self.send(data, &mut body).await,
                BodyFrame::Trailers(trailers) => tail = response::tail(&trailers)?,
            }
        }
        source.check_trailers()?;
        body.leave(self.worker, head, &source).await;
        Ok(tail)
    }

    /// Sends data as credit allows. Meanwhile the upstream is limited by its own window.
    async fn send(&self, mut data: Bytes, body: &mut ResponseBody) {
        while !data.is_empty() {
            let room = std::future::poll_fn(|context| {
                body.prefetch(context);
                self.credit.poll(context)
            });
            if room.await.is_none() {
                return;
            }
            let taken = self.credit.take(data.len().min(FRAME_MAX));
            let piece = data.split_to(taken);
            self.worker
                .send_frame(self.number, FromWorker::Data, &piece);
            body.credit_passed_on(taken);
        }
    }
}
