//! Calls under way at a worker, and the frames that it may send about them.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use faasw_egress_policy::Destination;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::connector::RefusedAddress;
use crate::ProtocolViolation;
use crate::credit::Credit;
use crate::frames::{Frame, FromWorker, WINDOW, cost};

/// A part of the response, as the worker encoded it. None of it is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The address that the policy refused. It comes from the node itself, and is for the owner of
    /// the function only. [`Failed`](Self::Failed) follows.
    Refused(RefusedAddress),
    /// The head: an [`Answer`](faasw_abi::outgoing::Answer), at most 64 KiB.
    Head(Bytes),
    /// There is no response, and why: a failed [`Answer`](faasw_abi::outgoing::Answer). Nothing
    /// follows.
    Failed(Bytes),
    /// A piece of the body; never empty.
    Data(Bytes),
    /// The end: a [`Tail`](faasw_abi::outgoing::Tail), at most 16 KiB. Nothing follows.
    End(Bytes),
}

/// Calls by their numbers.
pub type Calls = HashMap<u64, Entry>;

/// A call under way.
#[derive(Debug)]
pub struct Entry {
    /// Where the parts that the worker sends go.
    pub parts: mpsc::UnboundedSender<Part>,
    /// Credit of the request's data.
    pub credit: Arc<Credit>,
    /// The destination of the call.
    pub destination: Destination,
    /// How long connecting may take, in nanoseconds.
    pub connect_timeout: u64,
    /// The task that has a connection made.
    pub connecting: Option<AbortHandle>,
    /// Whether the worker has requested a connection. A call needs at most one: its first, or a
    /// replacement for an idle connection that turned out to be closed.
    pub has_needed: bool,
    /// Whether the response head has arrived.
    pub has_head: bool,
    /// Bytes that the worker may still send.
    pub window: usize,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(connecting) = &self.connecting {
            connecting.abort();
        }
        // For an entry that was removed before its end, because its call was cancelled.
        self.credit.close();
    }
}

/// Handles a frame. Returns whether its call needs a connection. A frame of an unknown call is
/// dropped: the call was cancelled, or is over.
///
/// # Errors
/// Returns [`ProtocolViolation`] if the frame is not allowed at this point.
pub fn handle_frame(
    calls: &mut Calls,
    frame: Frame<FromWorker>,
) -> Result<bool, ProtocolViolation> {
    let credit = frame.credit();
    let Frame { call, kind, bytes } = frame;
    let Some(entry) = calls.get_mut(&call) else {
        return Ok(false);
    };
    // A receiver that was dropped gets nothing: its cancel is on its way.
    let pass_on = |part: Part| drop(entry.parts.send(part));
    match kind {
        FromWorker::Need => {
            if entry.has_needed || entry.has_head {
                return Err(ProtocolViolation);
            }
            entry.has_needed = true;
            return Ok(true);
        }
        FromWorker::Head if !entry.has_head => {
            pass_on(Part::Head(bytes));
            entry.has_head = true;
        }
        FromWorker::Data if entry.has_head => {
            entry.window = entry
                .window
                .checked_sub(cost(bytes.len()))
                .ok_or(ProtocolViolation)?;
            pass_on(Part::Data(bytes));
        }
        FromWorker::Credit => {
            let credit = credit.ok_or(ProtocolViolation)?;
            entry.credit.add(credit)?;
        }
        FromWorker::Failed if !entry.has_head => end_call(calls, call, Part::Failed(bytes)),
        FromWorker::End if entry.has_head => end_call(calls, call, Part::End(bytes)),
        FromWorker::Head
        | FromWorker::Data
        | FromWorker::Failed
        | FromWorker::End
        | FromWorker::Alive => return Err(ProtocolViolation),
    }
    Ok(false)
}

/// Returns whether a frame shows that a server has sent or accepted something. The begin and the
/// failure of a call do not count.
pub fn is_progress(kind: FromWorker) -> bool {
    match kind {
        FromWorker::Head | FromWorker::Data | FromWorker::End | FromWorker::Credit => true,
        FromWorker::Need | FromWorker::Failed | FromWorker::Alive => false,
    }
}

/// Removes a call that is over from the table.
fn end_call(calls: &mut Calls, call: u64, last: Part) {
    if let Some(entry) = calls.remove(&call) {
        entry.end(last);
    }
}

impl Entry {
    /// Creates the entry of a new call.
    pub fn new(
        parts: mpsc::UnboundedSender<Part>,
        credit: Arc<Credit>,
        destination: Destination,
        connect_timeout: u64,
    ) -> Self {
        Self {
            parts,
            credit,
            destination,
            connect_timeout,
            connecting: None,
            has_needed: false,
            has_head: false,
            window: WINDOW,
        }
    }

    /// Ends the call without the worker.
    pub fn fail(self, answer: Bytes, tail: Bytes) {
        let last = if self.has_head {
            Part::End(tail)
        } else {
            Part::Failed(answer)
        };
        self.end(last);
    }

    /// Passes the last part on. Credit is closed first: a caller that has the end of its call can
    /// send no more.
    fn end(self, last: Part) {
        self.credit.close();
        // A caller that dropped the receiver does not need the end.
        let _ = self.parts.send(last);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::task::{Context, Wake, Waker};

    use super::*;
    use crate::frames::PIECE_MIN;

    fn calls() -> (Calls, mpsc::UnboundedReceiver<Part>) {
        let (parts, received) = mpsc::unbounded_channel();
        let destination = Destination::of_request(b"http", b"a.example").unwrap();
        let entry = Entry::new(parts, Arc::default(), destination, 1);
        (Calls::from([(7, entry)]), received)
    }

    fn receive(calls: &mut Calls, kind: FromWorker, bytes: &[u8]) -> Result<(), ProtocolViolation> {
        let bytes = Bytes::copy_from_slice(bytes);
        handle_frame(
            calls,
            Frame {
                call: 7,
                kind,
                bytes,
            },
        )
        .map(|_| ())
    }

    #[test]
    fn a_worker_that_sends_frames_out_of_order_is_abandoned() {
        const NEED: (FromWorker, &[u8]) = (FromWorker::Need, b"");
        let violations: &[&[(FromWorker, &[u8])]] = &[
            &[(FromWorker::Data, b"x")],
            &[(FromWorker::End, b"")],
            &[(FromWorker::Head, b"x"), (FromWorker::Head, b"x")],
            &[(FromWorker::Head, b"x"), (FromWorker::Failed, b"x")],
            &[(FromWorker::Head, b"x"), (FromWorker::Need, b"")],
            &[(FromWorker::Credit, &[1, 0, 0, 0])],
            &[NEED; 2],
            &[(FromWorker::Alive, b"")],
        ];
        for frames in violations {
            let (mut calls, _received) = calls();
            let (last, before) = frames.split_last().unwrap();
            for (kind, bytes) in before {
                assert_eq!(receive(&mut calls, *kind, bytes), Ok(()), "{frames:?}");
            }
            assert_eq!(
                receive(&mut calls, last.0, last.1),
                Err(ProtocolViolation),
                "{frames:?}"
            );
        }
    }

    #[test]
    fn a_worker_that_exceeds_its_window_is_abandoned() {
        let (mut calls, mut received) = calls();
        receive(&mut calls, FromWorker::Head, b"x").unwrap();
        let half = vec![0; WINDOW / 2];
        assert_eq!(receive(&mut calls, FromWorker::Data, &half), Ok(()));
        assert_eq!(receive(&mut calls, FromWorker::Data, &half), Ok(()));
        assert_eq!(
            receive(&mut calls, FromWorker::Data, b"x"),
            Err(ProtocolViolation)
        );
        received.close();
    }

    #[test]
    fn unread_small_pieces_are_bounded() {
        let (mut calls, mut received) = calls();
        receive(&mut calls, FromWorker::Head, b"x").unwrap();
        let pieces = std::iter::from_fn(|| receive(&mut calls, FromWorker::Data, b"x").ok());
        assert_eq!(pieces.take(WINDOW).count(), WINDOW / PIECE_MIN);
        received.close();
    }

    /// A waker that records whether the call's credit was closed when it was woken.
    struct Noting(Arc<Credit>, Mutex<Vec<bool>>);

    impl Wake for Noting {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().push(self.0.is_closed());
        }
    }

    #[test]
    fn a_caller_that_has_the_end_of_its_call_can_send_no_more() {
        let fail = |calls: &mut Calls| {
            calls.remove(&7).unwrap().fail(Bytes::new(), Bytes::new());
        };
        let failed = |calls: &mut Calls| receive(calls, FromWorker::Failed, b"why").unwrap();
        for end in [&fail as &dyn Fn(&mut Calls), &failed] {
            let (mut calls, mut received) = calls();
            let credit = calls[&7].credit.clone();
            let noting = Arc::new(Noting(credit, Mutex::default()));
            let waker = Waker::from(noting.clone());
            let mut context = Context::from_waker(&waker);
            assert!(received.poll_recv(&mut context).is_pending());
            end(&mut calls);
            assert_eq!(*noting.1.lock().unwrap(), [true]);
            assert_eq!(noting.0.take(1), 0);
        }
    }

    #[test]
    fn frames_of_an_ended_call_are_dropped_by_the_table() {
        let (mut calls, mut received) = calls();
        receive(&mut calls, FromWorker::Failed, b"why").unwrap();
        for kind in [
            FromWorker::Need,
            FromWorker::Head,
            FromWorker::Data,
            FromWorker::End,
        ] {
            assert_eq!(receive(&mut calls, kind, b"x"), Ok(()));
        }
        assert_eq!(
            received.try_recv().ok(),
            Some(Part::Failed(Bytes::from_static(b"why")))
        );
        assert!(received.try_recv().is_err());
    }
}
