//! The end of an exchange: what the function left behind, and who is still to get
//! it.

use std::time::Duration;

use bytes::Bytes;
use faasw_abi::channel::Channel;
use faasw_abi::mailbox::GuestWords;
use faasw_abi::wire::{Pair, ResponseHead, decode_trailers};
use tokio::time::timeout;
use zerocopy::FromZeros;

use super::backlog::Lease;
use super::body::{PART_BYTES, Part, PartSender};
use crate::error::InvokeError;
use crate::mailbox::{LogLines, Mailbox, outcome};
use crate::sink::Timing;

/// What a function left behind.
pub struct Ended {
    /// What was not handed out yet of a response that is whole.
    pub rest: Option<Rest>,
    /// How the function ended, which may be badly even after a whole response.
    pub result: Result<(), InvokeError>,
    /// Where the time went.
    pub timing: Timing,
    /// Whoever follows the instance.
    pub log: LogLines,
}

/// The end of a response that is whole.
pub struct Rest {
    /// Its head, unless that was handed out.
    pub head: Option<ResponseHead>,
    /// What was left of its body.
    pub bytes: Bytes,
    /// Its trailers.
    pub trailers: Vec<Pair>,
}

/// What is in the mailbox of a guest that is done.
pub struct Left {
    /// Its last words.
    pub guest: GuestWords,
    /// What was not handed out yet of a response that is whole.
    pub rest: Option<Rest>,
    /// How the function ended.
    pub result: Result<(), InvokeError>,
}

impl Left {
    /// Looks at the mailbox of a guest whose last words are `guest`. There is `room` for
    /// what is left of its response.
    pub fn in_mailbox(
        mailbox: &mut Mailbox,
        guest: GuestWords,
        log: &mut LogLines,
        room: Lease,
    ) -> Self {
        left_behind(mailbox, guest, log, room).unwrap_or_else(|error| Self {
            guest: GuestWords::new_zeroed(),
            rest: None,
            result: Err(error),
        })
    }
}

fn left_behind(
    mailbox: &mut Mailbox,
    guest: GuestWords,
    log: &mut LogLines,
    room: Lease,
) -> Result<Left, InvokeError> {
    log.take(&mailbox.take_log(&guest)?);
    log.end();
    let mut result = outcome(mailbox, &guest);
    let head = response_head(mailbox, &guest)?;
    // What never began has no room to be copied to.
    let left = if mailbox.has_taken_head(Channel::INVOCATION) {
        mailbox.take_rest(Channel::INVOCATION, &guest)?
    } else {
        None
    };
    let rest = match left {
        Some(left) => Some(Rest {
            head,
            bytes: room.hold(left.body),
            trailers: response_trailers(&left.tail)?,
        }),
        None => None,
    };
    if rest.is_none() && result.is_ok() {
        result = Err(InvokeError::GuestFailed(
            "it said that it was done in the middle of its response".to_owned(),
        ));
    }
    Ok(Left {
        guest,
        rest,
        result,
    })
}

/// Takes the head of a response, if it is there and was not taken.
///
/// # Errors
/// [`InvokeError::GuestFailed`] when it is none; the system's.
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

/// As [`response_head`], of a response that goes on: the guest has so much more room.
///
/// # Errors
/// As [`response_head`].
pub fn begin_stream(
    mailbox: &mut Mailbox,
    guest: &GuestWords,
) -> Result<Option<ResponseHead>, InvokeError> {
    let head = response_head(mailbox, guest)?;
    mailbox.tell_taken(Channel::INVOCATION)?;
    Ok(head)
}

/// The trailers that a response's tail spells.
///
/// # Errors
/// [`InvokeError::GuestFailed`] when it spells none.
pub fn response_trailers(tail: &[u8]) -> Result<Vec<Pair>, InvokeError> {
    decode_trailers(tail)
        .map_err(|error| InvokeError::GuestFailed(format!("its response trailers: {error}")))
}

impl Ended {
    /// Hands the rest of a body to a client that may be slow. The VM is gone by now.
    pub async fn deliver(&self, client: PartSender, limit: Duration) -> Result<(), InvokeError> {
        let Some(Rest {
            bytes, trailers, ..
        }) = &self.rest
        else {
            if let Err(error) = &self.result {
                // Where there is no room for it, the end of the channel says it too.
                let _ = client.try_send(Err(error.clone()));
            }
            return Ok(());
        };
        let mut rest = bytes.clone();
        loop {
            let is_end = rest.is_empty();
            let part = if is_end {
                Part::End {
                    trailers: trailers.clone(),
                    timing: self.timing,
                }
            } else {
                Part::Data(rest.split_to(rest.len().min(PART_BYTES)))
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
