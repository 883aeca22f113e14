//! What a guest's rings and words mean.

use faasw_abi::doorbell::Ring;
use faasw_abi::mailbox::{GuestWords, WAIT_LOG};
use faasw_abi::outcome::Outcome;

use crate::error::InvokeError;
use crate::log_lines::LogLines;
use crate::mailbox::Mailbox;
use crate::pace::Pace;
use crate::shell::{Event, Shell};

/// Waits until a guest without a request stands still; its log is emptied
/// meanwhile.
///
/// # Errors
/// [`InvokeError::GuestFailed`] when the guest breaks a rule or says that it
/// failed; platform errors.
pub async fn next_stop(
    shell: &mut Shell,
    mailbox: &mut Mailbox,
    log: &mut LogLines,
) -> Result<Ring, InvokeError> {
    let mut pace = Pace::new();
    loop {
        let event = shell.event_while_resting(pace.rests_until()).await?;
        let report = match event {
            Event::Progress => {
                let guest = mailbox.guest()?;
                let records = mailbox.take_log(&guest)?;
                pace.looked(&records);
                log.take(&records);
                if guest.wait_for & WAIT_LOG != 0 {
                    shell.wake()?;
                }
                continue;
            }
            Event::Rang(report) => report,
            Event::Failed(why) => return Err(InvokeError::GuestFailed(why)),
        };
        let guest = mailbox.guest()?;
        log.take(&mailbox.take_log(&guest)?);
        return match report.ring {
            Some(Ring::Fatal) => Err(fatal(mailbox)),
            Some(ring) => Ok(ring),
            None => Err(meaningless()),
        };
    }
}

/// A guest that says that it failed.
pub fn fatal(mailbox: &Mailbox) -> InvokeError {
    let report = mailbox
        .guest()
        .map_err(InvokeError::from)
        .and_then(|guest| mailbox.report(&guest));
    match report {
        Ok(report) => InvokeError::GuestFailed(report),
        Err(error) => error,
    }
}

/// A guest that rings with a number that stands for nothing.
pub fn meaningless() -> InvokeError {
    InvokeError::GuestFailed("it rang with a number that has no meaning".to_owned())
}

/// How a guest that is done says it ended.
///
/// # Errors
/// What the outcome says; [`InvokeError::GuestFailed`] when it makes no sense.
pub fn outcome(mailbox: &Mailbox, guest: &GuestWords) -> Result<(), InvokeError> {
    let report = || mailbox.report(guest);
    let outcome = Outcome::from_u32(guest.outcome).ok_or_else(|| {
        InvokeError::GuestFailed(format!(
            "it ended with the unknown outcome {}",
            guest.outcome
        ))
    })?;
    Err(match outcome {
        Outcome::Response => return Ok(()),
        Outcome::NoResponse => InvokeError::NoResponse,
        Outcome::Trap => InvokeError::Trap { report: report()? },
        Outcome::Exit => InvokeError::Exit {
            code: guest.exit_code,
        },
        Outcome::ResponseTooLarge => InvokeError::ResponseTooLarge { report: report()? },
        Outcome::FunctionError => InvokeError::FunctionError { report: report()? },
        Outcome::BadResponse => InvokeError::BadResponse { report: report()? },
        Outcome::LoadFailed => InvokeError::LoadFailed { report: report()? },
        Outcome::GuestFailed => InvokeError::GuestFailed(report()?),
        Outcome::Unset => {
            InvokeError::GuestFailed("it said that it was done, but not how".to_owned())
        }
    })
}
