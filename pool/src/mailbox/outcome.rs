//! The outcome that a guest reports at its end.

use faasw_abi::mailbox::GuestWords;
use faasw_abi::outcome::Outcome;
use faasw_abi::trap::TrapKind;

use super::file::Mailbox;
use crate::error::InvokeError;

/// Returns the error of a guest that reports that it failed.
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

/// Returns the error of a guest that rings with an undefined number.
pub fn meaningless() -> InvokeError {
    InvokeError::GuestFailed("it rang with an unknown number".to_owned())
}

/// Returns how a guest that is done has ended, as it reports.
///
/// # Errors
/// Returns the error that the outcome describes, or [`InvokeError::GuestFailed`] if the outcome is
/// undefined.
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
        Outcome::Trap => InvokeError::Trap {
            report: report()?,
            kind: TrapKind::from_u32(guest.trap).ok_or_else(|| {
                InvokeError::GuestFailed(format!("it ended with the unknown trap {}", guest.trap))
            })?,
        },
        Outcome::Exit => InvokeError::Exit {
            code: guest.exit_code,
        },
        Outcome::ResponseTooLarge => InvokeError::ResponseTooLarge { report: report()? },
        Outcome::FunctionError => InvokeError::FunctionError { report: report()? },
        Outcome::BadResponse => InvokeError::BadResponse { report: report()? },
        Outcome::LoadFailed => InvokeError::LoadFailed { report: report()? },
        Outcome::GuestFailed => InvokeError::GuestFailed(report()?),
        Outcome::Unset => {
            InvokeError::GuestFailed("it reported its end without an outcome".to_owned())
        }
    })
}
