//! Following a running guest from ring to ring.

use bytes::Bytes;
use faasw_abi::doorbell::Ring;
use faasw_abi::outcome::Outcome;
use faasw_abi::wire::ResponseHead;

use crate::error::InvokeError;
use crate::log_lines::LogLines;
use crate::mailbox::Mailbox;
use crate::shell::{Event, Report, Shell};

/// Waits until the guest rings for more than its log, which is emptied here.
///
/// # Errors
/// [`InvokeError::GuestFailed`] when the guest breaks a rule or says that it
/// failed; platform errors.
pub async fn next_stop(
    shell: &mut Shell,
    mailbox: &Mailbox,
    log: &mut LogLines,
) -> Result<(Ring, Report), InvokeError> {
    loop {
        let report = match shell.event().await? {
            Event::Rang(report) => report,
            Event::Failed(why) => return Err(InvokeError::GuestFailed(why)),
        };
        let ring = report.ring.ok_or_else(|| {
            InvokeError::GuestFailed("it rang with a number that has no meaning".to_owned())
        })?;
        match ring {
            Ring::LogFull => {
                log.take(&mailbox.drain_log()?);
                shell.resume().await?;
            }
            Ring::Fatal => {
                log.take(&mailbox.drain_log()?);
                let report = mailbox.report(&mailbox.header()?)?;
                return Err(InvokeError::GuestFailed(report));
            }
            // The shell serves waits itself.
            Ring::Wait => {
                return Err(InvokeError::GuestFailed("a wait came through".to_owned()));
            }
            Ring::Loaded | Ring::Ready | Ring::Done => return Ok((ring, report)),
        }
    }
}

/// What the guest left in the mailbox when it was done.
///
/// # Errors
/// What the outcome says; [`InvokeError::GuestFailed`] when it makes no sense.
pub fn result(mailbox: &Mailbox) -> Result<(ResponseHead, Bytes), InvokeError> {
    let header = mailbox.header()?;
    let report = || mailbox.report(&header);
    let outcome = Outcome::from_u32(header.outcome).ok_or_else(|| {
        InvokeError::GuestFailed(format!(
            "it ended with the unknown outcome {}",
            header.outcome
        ))
    })?;
    match outcome {
        Outcome::Response => {
            let head = ResponseHead::decode(&mailbox.response_head(&header)?)
                .map_err(|error| InvokeError::GuestFailed(format!("its response head: {error}")))?;
            Ok((head, mailbox.response_body(&header)?))
        }
        Outcome::NoResponse => Err(InvokeError::NoResponse),
        Outcome::Trap => Err(InvokeError::Trap { report: report()? }),
        Outcome::Exit => Err(InvokeError::Exit {
            code: header.exit_code,
        }),
        Outcome::ResponseTooLarge => Err(InvokeError::ResponseTooLarge { report: report()? }),
        Outcome::FunctionError => Err(InvokeError::FunctionError { report: report()? }),
        Outcome::BadResponse => Err(InvokeError::BadResponse { report: report()? }),
        Outcome::LoadFailed => Err(InvokeError::LoadFailed { report: report()? }),
        Outcome::GuestFailed => Err(InvokeError::GuestFailed(report()?)),
        Outcome::Unset => Err(InvokeError::GuestFailed(
            "it said that it was done, but not how".to_owned(),
        )),
    }
}
