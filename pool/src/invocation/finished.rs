//! The end of an invocation: what is left of its response, and how the client receives it.

use std::time::Duration;

use bytes::Bytes;
use faasw_abi::channel::Channel;
use faasw_abi::mailbox::GuestWords;
use faasw_abi::wire::{Pair, ResponseHead, decode_trailers};
use tokio::time::timeout;
use zerocopy::FromZeros;

use super::backlog::Lease;
use super::body::{PART_BYTES, PartSender, ReplyBody, ResponsePart};
use super::call::Reply;
use super::recycler::Recycler;
use super::run::{Invocation, RunOutcome};
use crate::error::InvokeError;
use crate::instances::ResetWait;
use crate::mailbox::{LogLines, Mailbox, outcome};
use crate::sink::Timing;

/// An invocation whose function is done, with room for all that is left of its response.
pub struct FinishedRun {
    /// How the function ended.
    pub done: RunOutcome,
    /// The room.
    pub room: Lease,
}

/// The remains of an invocation: the rest of the response, the result and the log.
pub struct FinishedInvocation {
    /// The part of a complete response that was not handed out yet.
    pub rest: Option<ResponseRest>,
    /// How the function ended. It may fail even after a complete response.
    pub result: Result<(), InvokeError>,
    /// Where the time went.
    pub timing: Timing,
    /// The log of the invocation.
    pub log: LogLines,
}

/// The end of a complete response.
pub struct ResponseRest {
    /// The head, unless it was handed out.
    pub head: Option<ResponseHead>,
    /// The rest of the body.
    pub bytes: Bytes,
    /// The trailers.
    pub trailers: Vec<Pair>,
}

/// The contents of the mailbox of a finished guest.
struct MailboxContents {
    /// The guest's last words.
    guest: GuestWords,
    /// The part of a complete response that was not handed out yet.
    rest: Option<ResponseRest>,
    /// How the function ended.
    result: Result<(), InvokeError>,
}

impl MailboxContents {
    /// Reads the mailbox of a guest whose last words are `guest`. `room` is the lease for the rest
    /// of its response.
    fn read(mailbox: &mut Mailbox, guest: GuestWords, log: &mut LogLines, room: Lease) -> Self {
        read_contents(mailbox, guest, log, room).unwrap_or_else(|error| Self {
            guest: GuestWords::new_zeroed(),
            rest: None,
            result: Err(error),
        })
    }
}

fn read_contents(
    mailbox: &mut Mailbox,
    guest: GuestWords,
    log: &mut LogLines,
    room: Lease,
) -> Result<MailboxContents, InvokeError> {
    log.take(&mailbox.take_log(&guest)?);
    log.end();
    let mut result = outcome(mailbox, &guest);
    let head = response_head(mailbox, &guest)?;
    // A response that never began has no lease to be copied to.
    let left = if mailbox.has_taken_head(Channel::INVOCATION) {
        mailbox.take_rest(Channel::INVOCATION, &guest)?
    } else {
        None
    };
    let rest = match left {
        Some(left) => Some(ResponseRest {
            head,
            bytes: room.hold(left.body),
            trailers: response_trailers(&left.tail)?,
        }),
        None => None,
    };
    if rest.is_none() && result.is_ok() {
        result = Err(InvokeError::GuestFailed(
            "it reported its end in the middle of its response".to_owned(),
        ));
    }
    Ok(MailboxContents {
        guest,
        rest,
        result,
    })
}

/// Takes the head of a response, if it is there and was not taken.
///
/// # Errors
/// Returns [`InvokeError::GuestFailed`] if the head is invalid, and a platform error if the mailbox
/// cannot be accessed.
pub fn response_head(
    mailbox: &mut Mailbox,
    guest: &GuestWords,
) -> Result<Option<ResponseHead>, InvokeError> {
    let Some(head) = mailbox.take_head(Channel::INVOCATION, guest)? else {
        return Ok(None);
    };
    let head = ResponseHead::decode(&head);
    head.map(Some)
        .map_err(|error| InvokeError::GuestFailed(format!("its response head: {error}")))
}

/// Takes the head as [`response_head`] does, for a response that continues. Tells the guest how
/// much was taken, so that it has that much more room.
///
/// # Errors
/// Returns the errors of [`response_head`].
pub fn begin_stream(
    mailbox: &mut Mailbox,
    guest: &GuestWords,
) -> Result<Option<ResponseHead>, InvokeError> {
    let head = response_head(mailbox, guest)?;
    mailbox.publish_taken(Channel::INVOCATION)?;
    Ok(head)
}

/// Decodes the trailers in the tail of a response.
///
/// # Errors
/// Returns [`InvokeError::GuestFailed`] if the tail is invalid.
pub fn response_trailers(tail: &[u8]) -> Result<Vec<Pair>, InvokeError> {
    decode_trailers(tail)
        .map_err(|error| InvokeError::GuestFailed(format!("its response trailers: {error}")))
}

impl Invocation {
    /// Ends the invocation of a finished function, and has its instance reset or ended.
    pub fn finish(mut self, run: FinishedRun) -> FinishedInvocation {
        self.close_services();
        let took = if self.was_hot {
            self.deadlines.age()
        } else {
            Duration::from_nanos(self.guest.exec_nanoseconds).min(self.deadlines.age())
        };
        let arrivals = self.version.warm_instances().arrivals();
        arrivals.note_answer(took, self.was_hot);
        // The last words were read when room was requested.
        let guest = self.guest;
        let MailboxContents {
            guest,
            rest,
            result,
        } = MailboxContents::read(&mut self.instance.mailbox, guest, &mut self.log, run.room);
        let report = match run.done {
            RunOutcome::Stopped(report) => Some(report),
            RunOutcome::Reported => None,
        };
        let run = report.map_or_else(|| self.deadlines.age(), |report| report.run);
        let timing = Timing {
            fork: report.map_or(Duration::ZERO, |report| report.fork),
            init: Duration::from_nanos(guest.init_nanoseconds).min(run),
            exec: Duration::from_nanos(guest.exec_nanoseconds).min(run),
            run,
            ..self.timing
        };
        // The request is over before its instance polls for another.
        drop(self.active_request);
        Recycler {
            instance: self.instance,
            version: self.version,
            report,
            reset_wait: ResetWait::new(
                self.rate_limit,
                self.deadlines.limits.cpu,
                self.deadlines.cpu,
                report.is_some(),
            ),
            is_good: result.is_ok(),
            sink: self.log.sink().clone(),
            number: self.timing.instance,
            permits: self.permits,
        }
        .start();
        FinishedInvocation {
            rest,
            result,
            timing,
            log: self.log,
        }
    }

    /// Ends an invocation that failed, and its sandbox. `error` is the result.
    pub async fn fail(mut self, error: InvokeError) -> FinishedInvocation {
        self.close_services();
        // Only a guest that has stopped leaves a complete log.
        self.instance.sandbox.destroy().await;
        drop(self.permits);
        if let Ok(guest) = self.instance.mailbox.guest()
            && let Ok(records) = self.instance.mailbox.take_log(&guest)
        {
            self.log.take(&records);
        }
        FinishedInvocation {
            rest: None,
            result: Err(error),
            timing: self.timing,
            log: self.log,
        }
    }

    /// Drops what serves the guest only: answers of the store and of outbound calls have no
    /// receiver any more, and no other guest needs the secrets.
    fn close_services(&mut self) {
        (self.store, self.calls, self.secrets) = (None, None, None);
        self.relay.reset();
    }
}

impl FinishedInvocation {
    /// Returns the reply, whose response is complete and was not handed out before.
    ///
    /// # Errors
    /// Returns how the function failed, or [`InvokeError::NoResponse`], if there is no complete
    /// response.
    pub fn into_reply(self) -> Result<Reply, InvokeError> {
        match self.rest {
            Some(ResponseRest {
                head: Some(head),
                bytes,
                trailers,
            }) => {
                // The response counts; a later failure is reported separately.
                if let Err(error) = &self.result {
                    self.log.sink().stream_ended(Err(error));
                }
                Ok(Reply {
                    head,
                    body: ReplyBody::Whole { bytes, trailers },
                    timing: self.timing,
                })
            }
            _ => Err(self.result.err().unwrap_or(InvokeError::NoResponse)),
        }
    }

    /// Hands the rest of a body to a client that may be slow. The instance does not wait for that:
    /// it is being recycled already, or it is gone.
    pub async fn deliver(&self, client: PartSender, limit: Duration) -> Result<(), InvokeError> {
        let Some(ResponseRest {
            bytes, trailers, ..
        }) = &self.rest
        else {
            if let Err(error) = &self.result {
                // If there is no room for the error, the end of the channel reports a failure, too.
                let _ = client.try_send(Err(error.clone()));
            }
            return Ok(());
        };
        let mut rest = bytes.clone();
        loop {
            let is_end = rest.is_empty();
            let part = if is_end {
                ResponsePart::End {
                    trailers: trailers.clone(),
                    timing: self.timing,
                }
            } else {
                ResponsePart::Data(rest.split_to(rest.len().min(PART_BYTES)))
            };
            match timeout(limit, client.send(Ok(part))).await {
                Ok(Ok(())) if is_end => return Ok(()),
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(InvokeError::ClientGone),
                Err(_) => return Err(InvokeError::IdleClient(limit)),
            }
        }
    }
}
