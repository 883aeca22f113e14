//! Parsers for values of options.

use std::{convert::Infallible, fmt, time::Duration};

use faasw_client::HostName;
use faasw_egress_policy::AllowPrivate;
use ipnet::IpNet;

/// A text that may contain a password and is never printed.
#[derive(Clone)]
pub(super) struct Hidden(pub(super) String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden")
    }
}

/// Accepts any text. Errors must not be reported by the parser of the command line, because it
/// would print the text with them.
pub(super) fn hidden(text: &str) -> Result<Hidden, Infallible> {
    Ok(Hidden(text.to_owned()))
}

pub(super) fn host(text: &str) -> Result<HostName, faasw_client::HostNameError> {
    HostName::new(text)
}

pub(super) fn time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time < Duration::from_millis(1) {
        return Err("shorter than 1ms".into());
    }
    Ok(time)
}

/// Parses a network of addresses, or a single address.
pub(super) fn network(text: &str) -> Result<IpNet, String> {
    AllowPrivate::network(text).map_err(|error| error.to_string())
}

pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    let number: usize = text.parse().map_err(|_| "not a whole number".to_owned())?;
    if number == 0 {
        return Err("must be at least 1".into());
    }
    Ok(number)
}

pub(super) fn at_least_one_use(text: &str) -> Result<u32, String> {
    let number = at_least_one(text)?;
    u32::try_from(number).map_err(|_| "too many".to_owned())
}
