//! Parsers for values of options.

use std::time::Duration;

use faasw_client::HostName;
use faasw_egress_policy::AllowPrivate;
use ipnet::IpNet;

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
