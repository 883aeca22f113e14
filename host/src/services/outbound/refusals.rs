//! Reports about outbound calls, for the owners of functions: which were made, and why others were
//! refused.

use std::sync::Arc;

use faasw_egress::client::RefusedAddress;
use faasw_egress_policy::Destination;

/// Receives reports about a function's outbound calls. The function's owner reads the refusals and
/// can then grant the calls.
pub(crate) trait OutboundObserver: Send + Sync {
    /// Whether calls are made at all. A function that was removed makes none.
    fn is_function_present(&self) -> bool;

    /// Reports a call that was granted and is made.
    fn call_made(&self);

    /// Reports a call that was refused, with the reason.
    fn call_refused(&self, why: &str);

    /// Counts a refused request whose reason is in the log already.
    fn refusal_repeated(&self);

    /// Reports a fact about a call that is made, for the function's owner.
    fn add_note(&self, what: &str);
}

/// Writes why a granted call was not made to the function's log.
pub(super) struct RefusalLog {
    destination: Destination,
    observer: Arc<dyn OutboundObserver>,
}

impl RefusalLog {
    /// Returns the log of a request to `destination`.
    pub(super) fn new(destination: Destination, observer: Arc<dyn OutboundObserver>) -> Self {
        Self {
            destination,
            observer,
        }
    }

    /// Writes which address was refused, and which option opens it.
    pub(super) fn report(&self, refused: &RefusedAddress) {
        self.observer
            .add_note(&refusal_text(&self.destination, refused));
    }
}

/// Describes a refusal. Neither destination nor address contains a control character: both were
/// parsed, and their types print them here.
fn refusal_text(destination: &Destination, refused: &RefusedAddress) -> String {
    let address = refused.address;
    let (is, opens) = match &refused.prohibited {
        None => ("an address of this host itself".to_owned(), Some(address)),
        Some(prohibited) => {
            let special = prohibited.special;
            let is = if prohibited.address == address {
                special.to_string()
            } else {
                format!("a form of {}, {special}", prohibited.address)
            };
            (is, special.can_be_opened().then_some(prohibited.address))
        }
    };
    let option = match opens {
        Some(address) => format!("start the node with --allow-private {address} to allow it"),
        None => "no option allows it".to_owned(),
    };
    format!(
        "a request to {destination} was granted and not made: {address} is {is}, \
         which functions may not reach ({option})"
    )
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use faasw_egress_policy::AllowPrivate;

    use super::*;

    fn text(address: &str, opened: &[&str]) -> String {
        let address: IpAddr = address.parse().unwrap();
        let networks = opened.iter().map(|it| AllowPrivate::network(it).unwrap());
        let prohibited = AllowPrivate::new(networks.collect()).permits(address).err();
        let destination = Destination::of_request(b"http", b"db.example:81").unwrap();
        refusal_text(
            &destination,
            &RefusedAddress {
                address,
                prohibited,
            },
        )
    }

    #[test]
    fn a_refusal_names_the_address_why_and_the_option_that_opens_it() {
        for (address, opened, expected) in [
            ("10.0.0.1", &[][..], "10.0.0.1 is a private address, which"),
            ("10.0.0.1", &[], "with --allow-private 10.0.0.1 to"),
            ("fd00::1", &[], "with --allow-private fd00::1 to"),
            (
                "169.254.169.254",
                &["169.254.0.0/16"],
                "is a metadata service's address, which",
            ),
            ("169.254.169.254", &[], "--allow-private 169.254.169.254 to"),
            (
                "64:ff9b::a00:1",
                &[],
                "64:ff9b::a00:1 is a form of 10.0.0.1, a private address",
            ),
            ("64:ff9b::a00:1", &[], "--allow-private 10.0.0.1 to"),
            ("224.0.0.1", &["0.0.0.0/0"], "(no option allows it)"),
            ("0.0.0.0", &[], "(no option allows it)"),
            ("1.1.1.1", &[], "1.1.1.1 is an address of this host itself"),
            ("1.1.1.1", &[], "--allow-private 1.1.1.1 to"),
        ] {
            let text = text(address, opened);
            assert!(text.contains(expected), "{text}");
            assert!(text.starts_with("a request to http://db.example:81 was granted"));
            assert!(text.chars().all(|it| !it.is_control()));
        }
    }
}
