//! A finished invocation: the rest of its response, and how the client receives it.

use std::time::Duration;

use bytes::Bytes;
use faasw_abi::channel::Channel;
use faasw_abi::mailbox::GuestWords;
use faasw_abi::wire::{Pair, ResponseHead, decode_trailers};
use tokio::time::timeout;
use zerocopy::FromZeros;

use super::backlog::Lease;
use super::body::{PART_BYTES, PartSender, ResponsePart};
use crate::error::InvokeError;
use crate::mailbox::{LogLines, Mailbox, outcome};
use crate::sink::Timing;

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
pub struct MailboxContents {
    /// The guest's last words.
    pub guest: GuestWords,
    /// The part of a complete response that was not handed out yet.
    pub rest: Option<ResponseRest>,
    /// How the function ended.
    pub result: Result<(), InvokeError>,
}

impl MailboxContents {
    /// Reads the mailbox of a guest whose last words are `guest`. `room` is the lease for the rest
    /// of its response.
    pub fn read(mailbox: &mut Mailbox, guest: GuestWords, log: &mut LogLines, room: Lease) -> Self {
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

impl FinishedInvocation {
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
