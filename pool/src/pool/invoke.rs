//! The way of a request through the pool.

use std::time::Instant;

use faasw_abi::channel::ChannelKind;
use faasw_common::text::Line;

use super::Pool;
use super::selection::SelectedInstance;
use crate::ablation::Mechanism;
use crate::error::InvokeError;
use crate::invocation::{
    AdmissionPermit, IncomingBody, Invocation, InvocationParts, InvocationPermits,
    InvocationRequest, Reply, ReplyForm, RequestClient, RunPermit, Secrets, permit_request,
};
use crate::mailbox::LogLines;
use crate::seeds::FunctionVersion;
use crate::sink::Timing;

/// A request with its permits, before it has an instance.
struct AdmittedRequest {
    arrived: Instant,
    call: InvocationRequest,
    permit: AdmissionPermit,
    run_permit: Option<RunPermit>,
}

impl Pool {
    /// Runs one request in an instance that is exactly in the state of its seed: a warm one, one
    /// that is just being reset, or a sandbox that is forked now.
    ///
    /// Dropping the future ends the instance.
    ///
    /// # Errors
    /// Returns an [`InvokeError`] that says why there is no response.
    pub async fn invoke(
        &self,
        version: &FunctionVersion,
        call: InvocationRequest,
    ) -> Result<Reply, InvokeError> {
        let arrived = Instant::now();
        // Waits for the seed before it takes a permit, so that other requests can use the permit
        // meanwhile.
        let within = call.limits.begins_within();
        let seed = version.seed_if_required(within).await?;
        let permit = self.admission_permit(version, &call.client).await?;
        let head = call.head.encode();
        self.provision(version);
        let run_permit = self.run_permit(version, &call.client).await;
        let selected = self.select(version, seed).await?;
        let admitted = AdmittedRequest {
            arrived,
            call,
            permit,
            run_permit,
        };
        let mut invocation = self.open(version, selected, admitted, &head)?;
        // Steps that few requests take are boxed: each future in this one is moved with it, whether
        // it runs or not.
        let mut started = invocation.start().await;
        if let Err(InvokeError::Platform(error)) = &started
            && Box::pin(invocation.end_if_untouched()).await
        {
            let (number, error) = (invocation.number(), Line(error));
            tracing::debug!(number, %error, "a request begins again in another microVM");
            started = Box::pin(self.start_again(&mut invocation, version, &head)).await;
        }
        match started.and_then(|started| invocation.reply_form(started)) {
            Ok(ReplyForm::Whole(run)) => invocation.finish(run).into_reply(),
            Ok(ReplyForm::Stream { head, done }) => Ok(invocation.into_streaming_reply(head, done)),
            Err(error) => Box::pin(invocation.fail(error)).await.into_reply(),
        }
    }

    /// Waits for the admission permit of a request. A request that another invocation waits for
    /// does not wait.
    async fn admission_permit(
        &self,
        version: &FunctionVersion,
        client: &RequestClient,
    ) -> Result<AdmissionPermit, InvokeError> {
        let (admission, request) = (self.inner.admission(), permit_request(version));
        match client.calling_function {
            None => admission.admit(request).await,
            Some(share) => admission.admit_nested(share, request),
        }
    }

    /// Waits for the run permit of a request. Short requests run one after the other: all are done
    /// sooner than if they took each other's processors, and fewer instances are needed.
    async fn run_permit(
        &self,
        version: &FunctionVersion,
        client: &RequestClient,
    ) -> Option<RunPermit> {
        let (admission, request) = (self.inner.admission(), permit_request(version));
        match client.calling_function {
            None => Some(admission.run_permit(request).await),
            // The invocation that waits for this one may have the last permit.
            Some(_) => admission.try_run_permit(request),
        }
    }

    /// Opens the mailbox of an instance for a request. Returns the invocation, which is to be
    /// started.
    fn open(
        &self,
        version: &FunctionVersion,
        selected: SelectedInstance,
        admitted: AdmittedRequest,
        head: &[u8],
    ) -> Result<Invocation, InvokeError> {
        let (mut instance, served) = (selected.instance, selected.served);
        let call = admitted.call;
        let busy = version.begin_request(served);
        let incoming = IncomingBody::new(call.body);
        let is_whole = incoming.has_ended();
        let warm_instances = version.warm_instances();
        let active_request = warm_instances.polling().begin();
        let polls_for_end = instance.is_claimed
            && active_request.is_alone()
            && warm_instances.arrivals().is_quick()
            && !Mechanism::NodeLooks.is_off();
        // The sandbox of a claimed instance polls for its order first.
        let tells_end = !polls_for_end && (instance.is_claimed || self.is_quiet());
        instance
            .mailbox
            .open(ChannelKind::Invocation, head, is_whole, tells_end)?;
        let calls = call.outbound.as_ref().map_or(0, |_| call.limits.calls);
        let secrets = call.secrets.as_ref().map(Secrets::bytes);
        let has_store = call.store.is_some();
        instance.mailbox.open_beside(has_store, secrets, calls)?;
        let number = self.inner.instance_numbers.next();
        Ok(Invocation::new(InvocationParts {
            instance,
            version: version.clone(),
            log: LogLines::new(call.log, number),
            incoming,
            timing: Timing {
                instance: number,
                queue: admitted.arrived.elapsed(),
                served,
                ..Timing::default()
            },
            permits: InvocationPermits {
                admission: admitted.permit,
                busy,
                caller: call.caller_permit,
            },
            run_permit: admitted.run_permit,
            limits: call.limits,
            client: call.client,
            waits: self.inner.admission().waits(),
            relay: self.inner.relay.clone(),
            active_request,
            store: call.store,
            secrets: call.secrets,
            outbound: call.outbound,
            polls_for_end,
        }))
    }
}
