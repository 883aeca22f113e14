//! Secrets that are bound to hosts: a function has a random text in place of each, for which the node puts the secret
//! into the headers of its requests to those hosts.
//!
//! The function, and whoever takes it over, has no use for such a text elsewhere; what comes back of the host may have the
//! secret all the same, if that shows what it was sent. The process that speaks to hosts has the secrets of requests under
//! way, not those of others.

use std::{fmt, io};

use faasw_abi::outgoing::OutgoingHead;
use faasw_control::{Outbound, SecretName};
use faasw_egress_policy::Destination;
use faasw_pool::Secrets;
use ring::rand::{SecureRandom as _, SystemRandom};
use zeroize::{Zeroize as _, Zeroizing};

/// What each text begins with: whoever finds one is to know what it is.
const PREFIX: &str = "bound-secret-";

/// Random bytes of a text, which spells them.
const RANDOM: usize = 16;

/// The bound secrets of a version of a function, as they are set.
pub(crate) struct Bound {
    all: Vec<One>,
    /// By their texts.
    values: Secrets,
}

struct One {
    name: SecretName,
    token: String,
    hosts: Vec<Outbound>,
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.all.iter().map(|one| &one.name);
        f.debug_list().entries(names).finish()
    }
}

/// A secret that cannot stand in a header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoHeader(pub(crate) SecretName);

/// A head that has secrets in it; nothing is left of them.
pub(crate) struct Filled(OutgoingHead);

impl Filled {
    pub(crate) fn head(&self) -> &OutgoingHead {
        &self.0
    }

    /// The head, for somebody who keeps it as it likes.
    pub(crate) fn into_head(mut self) -> OutgoingHead {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        for (_, value) in &mut self.0.headers {
            value.zeroize();
        }
    }
}

impl Bound {
    /// These, by name, hosts and value, each with a new text.
    ///
    /// # Errors
    /// The system's, where it has no memory or no random bytes.
    pub(crate) fn new(
        secrets: Vec<(SecretName, Vec<Outbound>, Zeroizing<Vec<u8>>)>,
    ) -> io::Result<Self> {
        let (mut all, mut opened) = (Vec::new(), Vec::new());
        for (name, hosts, value) in secrets {
            let mut random = [0; RANDOM];
            let drawn = SystemRandom::new().fill(&mut random);
            drawn.map_err(|_| io::Error::other("the system gives no random bytes"))?;
            let token = format!("{PREFIX}{:032x}", u128::from_le_bytes(random));
            all.push(One { name, token, hosts });
            opened.push(value);
        }
        let pairs = all.iter().zip(&opened);
        let pairs: Vec<(&[u8], &[u8])> = pairs
            .map(|(one, value)| (one.token.as_bytes(), value.as_slice()))
            .collect();
        let values = Secrets::new(&pairs)?;
        Ok(Self { all, values })
    }

    /// What functions read in place of each.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = (&SecretName, &str)> {
        self.all.iter().map(|one| (&one.name, one.token.as_str()))
    }

    /// A head that has in its fields the secrets that are bound to where it goes; nothing where there are none to put
    /// in. Tells of those whose texts are in it that are bound to others.
    ///
    /// # Errors
    /// When one of them cannot stand there.
    pub(crate) fn fill(
        &self,
        head: &OutgoingHead,
        destination: &Destination,
        mut tell: impl FnMut(&SecretName),
    ) -> Result<Option<Filled>, NoHeader> {
        let mut filled: Option<Filled> = None;
        for one in &self.all {
            let token = one.token.as_bytes();
            let has_it = |(_, value): &(Vec<u8>, Vec<u8>)| find(value, token).is_some();
            if !head.headers.iter().any(has_it) {
                continue;
            }
            if !one
                .hosts
                .iter()
                .any(|host| host.grant().allows(destination))
            {
                tell(&one.name);
                continue;
            }
            let value = self.values.value(token).unwrap_or_default();
            if !value
                .iter()
                .all(|byte| (32..127).contains(byte) || *byte >= 128 || *byte == b'\t')
            {
                return Err(NoHeader(one.name.clone()));
            }
            let filled = filled.get_or_insert_with(|| Filled(head.clone()));
            for (_, field) in &mut filled.0.headers {
                let mut put = replaced(field, token, value);
                std::mem::swap(field, &mut put);
                // With a text of another one in it, it may have that one's secret by now.
                put.zeroize();
            }
        }
        Ok(filled)
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// `text` with `value` in place of each `part`. Not to grow: what grows leaves copies behind.
fn replaced(text: &[u8], part: &[u8], value: &[u8]) -> Vec<u8> {
    let mut count = 0;
    let mut rest = text;
    while let Some(at) = find(rest, part) {
        count += 1;
        rest = rest.split_at(at + part.len()).1;
    }
    let mut replaced = Vec::with_capacity(text.len() - count * part.len() + count * value.len());
    let mut rest = text;
    while let Some(at) = find(rest, part) {
        let (before, behind) = rest.split_at(at);
        replaced.extend_from_slice(before);
        replaced.extend_from_slice(value);
        rest = behind.split_at(part.len()).1;
    }
    replaced.extend_from_slice(rest);
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(text: &str) -> Destination {
        let (scheme, authority) = text.split_once("://").unwrap();
        Destination::of_request(scheme.as_bytes(), authority.as_bytes()).unwrap()
    }

    fn bound(secrets: &[(&str, &str, &str)]) -> Bound {
        let secrets = secrets.iter().map(|(name, host, value)| {
            let value = Zeroizing::new(value.as_bytes().to_vec());
            let host = Outbound::new(host).unwrap();
            (SecretName::new(name).unwrap(), vec![host], value)
        });
        Bound::new(secrets.collect()).unwrap()
    }

    fn head(fields: &[(&str, String)]) -> OutgoingHead {
        let fields = fields.iter();
        let fields = fields.map(|(name, value)| (name.as_bytes().to_vec(), value.clone().into()));
        OutgoingHead {
            headers: fields.collect(),
            ..OutgoingHead::default()
        }
    }

    #[test]
    fn a_secret_goes_into_headers_of_requests_to_its_hosts_alone() {
        let bound = bound(&[
            ("key", "https://*.api.test", "s3cret"),
            ("other", "https://other.test", "unsent"),
        ]);
        let tokens: Vec<_> = bound.tokens().map(|(_, token)| token.to_owned()).collect();
        let [key, other] = [&tokens[0], &tokens[1]];
        assert!(key != other && key.starts_with(PREFIX) && key.len() == other.len());
        let head = head(&[
            ("authorization", format!("Bearer {key}")),
            ("x-both", format!("{key}{other},{key}")),
            ("accept", "*/*".to_owned()),
        ]);
        let mut told = Vec::new();
        let tell = |name: &SecretName| told.push(name.to_string());
        let filled = bound.fill(&head, &destination("https://a.api.test"), tell);
        let filled = filled.unwrap().unwrap();
        let values: Vec<_> = filled
            .head()
            .headers
            .iter()
            .map(|(_, value)| value)
            .collect();
        let expected = [
            "Bearer s3cret".to_owned(),
            format!("s3cret{other},s3cret"),
            "*/*".to_owned(),
        ];
        assert!(
            values
                .iter()
                .zip(&expected)
                .all(|(found, text)| *found == text.as_bytes())
        );
        for value in values {
            assert!(value.capacity() == value.len() || value == b"*/*");
        }
        assert_eq!(told, ["other"]);
        // Another name, another port, another scheme, an address.
        for elsewhere in [
            "https://api.test",
            "https://a.api.test:8443",
            "http://a.api.test",
            "http://a.api.test:443",
            "https://a.api.test.evil.test",
            "https://127.0.0.1",
        ] {
            let mut told = Vec::new();
            let tell = |name: &SecretName| told.push(name.to_string());
            let filled = bound.fill(&head, &destination(elsewhere), tell).unwrap();
            assert!(filled.is_none(), "{elsewhere}");
            assert_eq!(told, ["key", "other"], "{elsewhere}");
        }
        assert!(!format!("{bound:?}").contains("s3cret"));
    }

    #[test]
    fn what_is_no_headers_is_said_by_its_name() {
        for wrong in ["a\r\nx-evil: 1", "a\nb", "a\0b", "\u{7f}"] {
            let bound = bound(&[("key", "https://api.test", wrong)]);
            let token = bound.tokens().next().unwrap().1.to_owned();
            let refused = bound
                .fill(
                    &head(&[("x", token)]),
                    &destination("https://api.test"),
                    |_| (),
                )
                .map(|_| ());
            assert_eq!(refused, Err(NoHeader(SecretName::new("key").unwrap())));
        }
        let bound = bound(&[("key", "https://api.test", "\u{e9}\t~ ")]);
        let token = bound.tokens().next().unwrap().1.to_owned();
        let filled = bound.fill(
            &head(&[("x", token)]),
            &destination("https://api.test"),
            |_| (),
        );
        assert!(filled.is_ok_and(|filled| filled.is_some()));
    }
}
