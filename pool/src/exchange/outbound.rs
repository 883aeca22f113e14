//! Whoever makes a function's requests to others, as the pool sees it.
//!
//! A pool knows neither names nor connections: it hands each request to an [`Outbound`], passes its
//! body on as fast as that takes it, and gives the guest what comes back. Heads and tails of
//! answers are bytes to it, spelled as [`faasw_abi::outgoing`] says; it holds their lengths against
//! what a guest takes and looks no further.

use std::fmt;
use std::task::{Context, Poll};

use bytes::Bytes;
use faasw_abi::outgoing::{Failure, OutgoingHead};

/// Makes the requests of one function.
pub trait Outbound: fmt::Debug + Send + Sync {
    /// Begins a request. It is called in the middle of an invocation, which goes on when it
    /// returns: it waits for nothing. Whether the function may make that request is decided here;
    /// one that it may not, or that cannot be made now, is a call whose answer has failed.
    fn begin(&self, request: OutgoingRequest) -> Box<dyn OutgoingCall>;
}

/// A request as it begins.
#[derive(Clone, Debug)]
pub struct OutgoingRequest {
    /// Its head, by the guest's word: names and values were not looked at.
    pub head: OutgoingHead,
    /// The same as bytes: as the guest spelled it, or whoever has changed it for the guest.
    pub bytes: Bytes,
    /// There is neither a body nor a tail: [`OutgoingCall::send`] and [`OutgoingCall::end`] are not
    /// called.
    pub is_whole: bool,
}

/// A request that is under way. Dropping it ends it, wherever it is, and nothing of it is heard any
/// more: it is dropped when its answer has ended, when the function lets go of it, and with its
/// invocation.
pub trait OutgoingCall: Send {
    /// How many bytes of the request's body it takes now, at least one. Pending while it takes
    /// none; for ever where the body is not of interest any more.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<usize>;

    /// Takes bytes of the body, no more than it had room for when it was last asked.
    fn send(&mut self, body: Bytes);

    /// The body ends, and this is its [`Tail`](faasw_abi::outgoing::Tail): at most
    /// [`TAIL_MAX`](faasw_abi::channel::TAIL_MAX) bytes, by the guest's word. Called once, and
    /// nothing is sent after it.
    fn end(&mut self, tail: Vec<u8>);

    /// The next part of the answer. Called again after [`AnswerPart::Head`] and
    /// [`AnswerPart::Data`] only, when the guest has room for more: whatever waits meanwhile is to
    /// be bounded by whoever has it.
    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<AnswerPart>;
}

/// A part of an answer: a head, any number of pieces of its body, and an end; or a failure in place
/// of what is still to come.
#[derive(Clone, Debug)]
pub enum AnswerPart {
    /// An [`Answer`](faasw_abi::outgoing::Answer): at most
    /// [`HEAD_MAX`](faasw_abi::channel::HEAD_MAX) bytes, and not none. One that has failed is
    /// followed by an end without a tail.
    Head(Bytes),
    /// Bytes of the body. A few ten thousand at most: they are in memory until the guest has room.
    Data(Bytes),
    /// The body ends. A [`Tail`](faasw_abi::outgoing::Tail): at most
    /// [`TAIL_MAX`](faasw_abi::channel::TAIL_MAX) bytes.
    End(Bytes),
    /// The request has failed: before a head or in the middle of a body.
    Failed(Failure),
}
