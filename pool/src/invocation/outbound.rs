//! The pool's interface to the component that makes a function's outbound calls.
//!
//! A pool knows neither names nor connections. It hands each request to an [`Outbound`], passes the
//! body on as fast as the call takes it, and gives the guest what comes back. To the pool, heads
//! and tails of answers are bytes in the encoding of [`faasw_abi::outgoing`]. It checks their
//! lengths against what a guest accepts, and nothing else.

use std::fmt;
use std::task::{Context, Poll};

use bytes::Bytes;
use faasw_abi::outgoing::{Failure, OutgoingHead};

/// Makes the requests of one function.
pub trait Outbound: fmt::Debug + Send + Sync {
    /// Begins a request. It is called in the middle of an invocation, which continues when it
    /// returns, so it must not wait. The implementation decides whether the function may make the
    /// request. A request that is not allowed, or that cannot be made now, is a call with a failed
    /// answer.
    fn begin(&self, request: OutgoingRequest) -> Box<dyn OutgoingCall>;
}

/// A request as it begins.
#[derive(Clone, Debug)]
pub struct OutgoingRequest {
    /// The head, as the guest sent it: names and values were not checked.
    pub head: OutgoingHead,
    /// The head as bytes: as the guest encoded it, or as it was changed for the guest.
    pub bytes: Bytes,
    /// There is neither a body nor a tail: [`OutgoingCall::send`] and [`OutgoingCall::end`] are not
    /// called.
    pub is_whole: bool,
}

/// A request that is under way. Dropping it ends the request, whatever its progress, and nothing
/// more is received from it. It is dropped when its answer has ended, when the function drops it,
/// and when its invocation ends.
pub trait OutgoingCall: Send {
    /// Returns how many bytes of the request's body it takes now, at least one. It is pending while
    /// it takes none, and for ever if the body is not needed any more.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<usize>;

    /// Takes bytes of the body, at most as many as the last `poll_room` returned.
    fn send(&mut self, body: Bytes);

    /// Ends the body with this [`Tail`](faasw_abi::outgoing::Tail), which is at most
    /// [`TAIL_MAX`](faasw_abi::channel::TAIL_MAX) bytes as the guest sent them. It is called once,
    /// and nothing is sent after it.
    fn end(&mut self, tail: Vec<u8>);

    /// Returns the next part of the answer. After [`AnswerPart::Head`] and [`AnswerPart::Data`] it
    /// is called again when the guest has room for more; after other parts it is not. The
    /// implementation must bound what waits meanwhile.
    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<AnswerPart>;
}

/// A part of an answer. An answer is a head, any number of pieces of its body, and an end. A
/// failure replaces all parts that are still to come.
#[derive(Clone, Debug)]
pub enum AnswerPart {
    /// An [`Answer`](faasw_abi::outgoing::Answer): at least one byte and at most
    /// [`HEAD_MAX`](faasw_abi::channel::HEAD_MAX). A failed answer is followed by an end without a
    /// tail.
    Head(Bytes),
    /// Bytes of the body, at most a few tens of thousands: they stay in memory until the guest has
    /// room.
    Data(Bytes),
    /// The end of the body. A [`Tail`](faasw_abi::outgoing::Tail): at most
    /// [`TAIL_MAX`](faasw_abi::channel::TAIL_MAX) bytes.
    End(Bytes),
    /// The request has failed, before a head or in the middle of a body.
    Failed(Failure),
}
