//! A request that was checked, with what is reserved for it before it runs.

use std::sync::{Arc, atomic::AtomicBool};

use faasw_client::FunctionKind;
use faasw_pool::{Account, InvokeError, Lease};
use http::{Request, request::Parts};
use http_body::Body as _;

use crate::{
    failure::Failure,
    message::{
        self, BodyLimits, CallerContext, GatherError, GatherGoal, GatheredBody, RequestRejection,
    },
    node::functions::Function,
};

/// A request on its way to an instance.
pub(super) struct IncomingRequest {
    pub(super) parts: Parts,
    pub(super) body: GatheredBody,
    /// The invocation that makes this request, if it is a self call.
    pub(super) caller: Option<CallerContext>,
    /// The account of the request's and the response's bytes that wait.
    pub(super) account: Account,
    /// The memory that the head takes. `None` if there is none left.
    pub(super) head_lease: Option<Lease>,
    /// Whether the response has begun.
    pub(super) is_answered: Arc<AtomicBool>,
    /// Whether the client waits for `100 Continue`.
    expects_continue: bool,
    /// Whether no part of the body is still to come.
    is_whole: bool,
    goal: GatherGoal,
}

impl IncomingRequest {
    /// Takes a request for `function` apart, and reserves memory for its head.
    pub(super) fn new<B>(
        function: &Function,
        request: Request<B>,
        caller: Option<CallerContext>,
        account: Account,
        limits: BodyLimits,
    ) -> Self
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        let expects_continue = message::expects_continue(&request);
        let (parts, body) = request.into_parts();
        let length = body.size_hint().exact();
        let goal = match function.record.kind {
            FunctionKind::CgiModule | FunctionKind::CliComponent if length.is_none() => {
                GatherGoal::Length
            }
            _ => GatherGoal::EnoughSigns,
        };
        let is_answered = limits.is_answered.clone();
        let body = message::limited(body, limits);
        let is_whole = body.is_end_stream();
        Self {
            // The heads of waiting requests count as memory, like bodies.
            head_lease: account.try_lease(message::head_cost(&parts.headers)),
            body: GatheredBody {
                is_early: !is_whole,
                body,
                length,
            },
            parts,
            caller,
            account,
            is_answered,
            expects_continue,
            is_whole,
            goal,
        }
    }

    /// Whether the request is refused before its body is sent, for lack of memory or slots.
    pub(super) fn lacks_room(&self, function: &Function) -> bool {
        !self.is_whole
            && (self.head_lease.is_none()
                || self.expects_continue && !has_free_permit(self.caller.as_ref(), function))
    }

    /// Whether the request proceeds without waiting for its body.
    pub(super) fn starts_at_once(&self) -> bool {
        // Gathering the body would make a client that waits for `100 Continue` send it, possibly in
        // vain.
        let is_early = self.expects_continue || self.caller.is_some();
        self.is_whole || is_early && self.goal == GatherGoal::EnoughSigns
    }

    /// Waits for as much of the body as the function needs before it starts.
    ///
    /// # Errors
    /// Returns the failure of a request whose body was not gathered, once its client has sent
    /// enough of the rest to read the answer. A self call has no such client.
    pub(super) async fn gather(mut self, function: &Function) -> Result<Self, Failure> {
        let GatheredBody { body, length, .. } = self.body;
        let caller = self.caller.as_ref();
        let has_room = || has_free_permit(caller, function);
        let gathered = message::gather(body, &self.account, self.goal, has_room).await;
        let gathered = match gathered {
            Ok(gathered) => gathered,
            Err(error) => return Err(gather_failure(error, caller.is_some()).await),
        };
        self.body = match self.goal {
            GatherGoal::Length => gathered,
            GatherGoal::EnoughSigns => GatheredBody { length, ..gathered },
        };
        Ok(self)
    }

    /// Discards the body of a request that is refused, and returns the failure.
    pub(super) async fn refuse(self, failure: Failure) -> Failure {
        message::refuse(Request::from_parts(self.parts, self.body.body)).await;
        failure
    }
}

/// Whether a request would get an admission permit now. The invocation that makes a self call
/// holds a permit already, so the self call does not wait until other requests release theirs.
fn has_free_permit(caller: Option<&CallerContext>, function: &Function) -> bool {
    let version = || function.version_cell.get();
    caller.is_some() || version().is_none_or(|version| version.has_free_permit())
}

async fn gather_failure(error: GatherError, is_self_call: bool) -> Failure {
    let (failure, rest) = match error {
        GatherError::Client(error) => return InvokeError::from(error).into(),
        GatherError::LengthUnknown { limit, rest } => {
            (RequestRejection::LengthUnknown(limit).into(), rest)
        }
        GatherError::NoRoom { rest } => (Failure::NoRoom, rest),
    };
    if !is_self_call {
        message::discard(rest).await;
    }
    failure
}
