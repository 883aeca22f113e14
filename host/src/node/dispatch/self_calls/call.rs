//! A self call, as the calling invocation sees it.

use std::{
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use faasw_abi::{
    channel::{HEAD_MAX, TAIL_MAX},
    outgoing::{Answer, Failure, FailureCode, Tail, Timeouts},
    wire::{Pair, ResponseHead},
};
use faasw_pool::{AnswerPart, OutgoingCall};
use http::{HeaderMap, Response, header};
use http_body::Body as _;
use tokio::time::{Instant, Sleep, sleep_until};

use super::body::SelfCallBodySender;
use crate::message::Body;

/// The largest piece of a response body, in bytes.
const MAX_PIECE_BYTES: usize = 64 << 10;

/// Resolves to the response.
type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Failure>> + Send>>;

/// A call under way. Dropping it ends the instance that answers it.
pub(crate) struct SelfCall {
    /// Present until the request's body has ended.
    sending: Option<SelfCallBodySender>,
    answer: ResponseStage,
    timeouts: Timeouts,
    /// When the next part of the response has to arrive.
    due: Option<Pin<Box<Sleep>>>,
}

enum ResponseStage {
    /// The called function has not started its response.
    Waiting(Answering),
    /// The response has started. `held` is data that was received but not passed on to the guest
    /// yet.
    Answering { body: Body, held: Bytes },
    /// The response has ended.
    Over,
}

impl SelfCall {
    pub(crate) fn new(
        answering: Answering,
        sending: Option<SelfCallBodySender>,
        timeouts: Timeouts,
    ) -> Self {
        Self {
            sending,
            answer: ResponseStage::Waiting(answering),
            timeouts,
            due: timer(timeouts.first_byte),
        }
    }

    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Result<AnswerPart, Failure>> {
        match &mut self.answer {
            ResponseStage::Waiting(answering) => {
                let response = ready!(answering.as_mut().poll(context))?;
                let (head, body) = head_of(response)?;
                let held = Bytes::new();
                self.answer = ResponseStage::Answering { body, held };
                Poll::Ready(Ok(AnswerPart::Head(head)))
            }
            ResponseStage::Answering { body, held } => {
                while held.is_empty() {
                    let Some(frame) = ready!(Pin::new(&mut *body).poll_frame(context)) else {
                        return Poll::Ready(Ok(AnswerPart::End(Bytes::new())));
                    };
                    // The reason is in the node's log.
                    let frame = frame.map_err(|_| incomplete())?;
                    match frame.into_data() {
                        Ok(data) => *held = data,
                        Err(frame) => {
                            let trailers = frame.into_trailers().unwrap_or_default();
                            return Poll::Ready(tail_of(&trailers).map(AnswerPart::End));
                        }
                    }
                }
                // Splitting would leave an empty rest that keeps the whole allocation.
                let piece = match held.len() {
                    ..=MAX_PIECE_BYTES => mem::take(held),
                    _ => held.split_to(MAX_PIECE_BYTES),
                };
                Poll::Ready(Ok(AnswerPart::Data(piece)))
            }
            ResponseStage::Over => Poll::Pending,
        }
    }

    /// Waits until the response's next part is late. Returns the failure code of the timeout that
    /// expired.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<FailureCode> {
        match &mut self.due {
            None => Poll::Pending,
            Some(due) => due.as_mut().poll(context).map(|()| match self.answer {
                ResponseStage::Waiting(_) => FailureCode::HttpResponseTimeout,
                ResponseStage::Answering { .. } | ResponseStage::Over => {
                    FailureCode::ConnectionReadTimeout
                }
            }),
        }
    }
}

impl OutgoingCall for SelfCall {
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        match &mut self.sending {
            Some(sending) => sending.poll_room(context),
            None => Poll::Pending,
        }
    }

    fn send(&mut self, body: Bytes) {
        if let Some(sending) = &mut self.sending {
            sending.send(body);
        }
    }

    fn end(&mut self, tail: Vec<u8>) {
        if let Some(sending) = self.sending.take() {
            sending.finish(tail);
        }
    }

    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<AnswerPart> {
        let part = match self.poll_part(context) {
            Poll::Ready(part) => part,
            Poll::Pending => Err(Failure::new(ready!(self.poll_late(context)))),
        };
        let part = part.unwrap_or_else(AnswerPart::Failed);
        self.due = timer(self.timeouts.between_bytes);
        if matches!(part, AnswerPart::End(_) | AnswerPart::Failed(_)) {
            // A failed call ends its instance now, even if the caller still holds the call.
            (self.answer, self.due) = (ResponseStage::Over, None);
        }
        Poll::Ready(part)
    }
}

/// Returns a timer for this many nanoseconds, or none for 0.
fn timer(nanoseconds: u64) -> Option<Pin<Box<Sleep>>> {
    let after = Some(Duration::from_nanos(nanoseconds)).filter(|after| !after.is_zero())?;
    // A time beyond the clock's range is never reached.
    let at = Instant::now().checked_add(after)?;
    Some(Box::pin(sleep_until(at)))
}

/// Returns a response's head, encoded for the guest, and its body.
fn head_of(response: Response<Body>) -> Result<(Bytes, Body), Failure> {
    let (mut parts, body) = response.into_parts();
    // The server that sends a response to a client adds this header; here there is none.
    if let Some(length) = body.size_hint().exact().filter(|length| *length > 0) {
        let headers = &mut parts.headers;
        headers
            .entry(header::CONTENT_LENGTH)
            .or_insert(length.into());
    }
    let head = Answer::Response(ResponseHead {
        status: parts.status.as_u16(),
        headers: pairs(&parts.headers),
    });
    let bytes = within(head.encode(), HEAD_MAX);
    let too_large = |bytes| of_size(FailureCode::HttpResponseHeaderSectionSize, bytes);
    Ok((bytes.map_err(too_large)?, body))
}

fn tail_of(trailers: &HeaderMap) -> Result<Bytes, Failure> {
    let tail = within(Tail::Trailers(pairs(trailers)).encode(), TAIL_MAX);
    tail.map_err(|bytes| of_size(FailureCode::HttpResponseTrailerSectionSize, bytes))
}

fn pairs(fields: &HeaderMap) -> Vec<Pair> {
    let pair = |(name, value): (&header::HeaderName, &header::HeaderValue)| {
        (name.as_str().into(), value.as_bytes().into())
    };
    fields.iter().map(pair).collect()
}

/// Returns the bytes if they are no longer than `most`, or else their length as the error.
fn within(bytes: Vec<u8>, most: u64) -> Result<Bytes, u64> {
    match bytes.len() as u64 {
        length if length > most => Err(length),
        _ => Ok(bytes.into()),
    }
}

fn of_size(code: FailureCode, bytes: u64) -> Failure {
    Failure {
        number: Some(bytes),
        ..Failure::new(code)
    }
}

fn incomplete() -> Failure {
    Failure::new(FailureCode::HttpResponseIncomplete)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, poll_fn, ready};

    fn call(answering: Answering, timeouts: Timeouts) -> SelfCall {
        SelfCall::new(answering, None, timeouts)
    }

    async fn next(call: &mut SelfCall) -> AnswerPart {
        poll_fn(|context| call.poll_answer(context)).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_self_call_fails_by_the_callers_timeouts() {
        let begun = Instant::now();
        let timeouts = Timeouts {
            first_byte: 2_000_000_000,
            ..Timeouts::default()
        };
        let mut late = call(Box::pin(pending()), timeouts);
        let AnswerPart::Failed(failure) = next(&mut late).await else {
            panic!("it has not failed");
        };
        assert_eq!(failure.code, FailureCode::HttpResponseTimeout);
        assert_eq!(begun.elapsed(), Duration::from_secs(2));
        // Without a timeout of the caller, the call waits.
        let mut waiting = call(Box::pin(pending()), Timeouts::default());
        let hour = tokio::time::timeout(Duration::from_secs(3600), next(&mut waiting));
        assert!(hour.await.is_err());
    }

    #[tokio::test]
    async fn a_self_call_response_is_split_to_ring_size() {
        let bytes = vec![7; 3 * MAX_PIECE_BYTES + 1];
        let response = Response::new(Body::from(bytes.clone()));
        let mut call = call(Box::pin(ready(Ok(response))), Timeouts::default());
        let AnswerPart::Head(head) = next(&mut call).await else {
            panic!("no head");
        };
        let Ok(Answer::Response(head)) = Answer::decode(&head) else {
            panic!("no response");
        };
        let length = (3 * MAX_PIECE_BYTES + 1).to_string();
        assert_eq!(head.headers, [(b"content-length".to_vec(), length.into())]);
        let mut got = Vec::new();
        loop {
            match next(&mut call).await {
                AnswerPart::Data(data) => {
                    assert!((1..=MAX_PIECE_BYTES).contains(&data.len()));
                    got.extend_from_slice(&data);
                }
                AnswerPart::End(tail) => break assert!(tail.is_empty()),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(got, bytes);
    }

    #[tokio::test]
    async fn a_head_too_large_for_a_guest_is_a_failure() {
        let mut response = Response::new(Body::empty());
        for number in 0..3000 {
            let name = header::HeaderName::try_from(format!("x-{number}")).unwrap();
            let value = header::HeaderValue::from_static("a value of some length");
            response.headers_mut().insert(name, value);
        }
        let mut call = call(Box::pin(ready(Ok(response))), Timeouts::default());
        let AnswerPart::Failed(failure) = next(&mut call).await else {
            panic!("it has not failed");
        };
        assert_eq!(failure.code, FailureCode::HttpResponseHeaderSectionSize);
        let gone = Err(Failure::new(FailureCode::ConnectionTerminated));
        let mut call = super::tests::call(Box::pin(ready(gone)), Timeouts::default());
        assert!(matches!(next(&mut call).await, AnswerPart::Failed(_)));
    }
}
