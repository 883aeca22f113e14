//! Secrets that are bound to hosts. The function reads a random token in place of each secret, and
//! the node replaces the token by the secret in headers of requests to those hosts.
//!
//! The token is useless elsewhere, for the function and for an attacker who takes the function
//! over. A host's response may still contain the secret, if the host echoes what it received. The
//! process that speaks to hosts holds the secrets of current and recent requests, and no others.

use std::{fmt, io};

use faasw_abi::{channel::HEAD_MAX, outgoing::OutgoingHead};
use faasw_client::{Outbound, SecretName};
use faasw_egress_policy::Destination;
use faasw_pool::Secrets;
use memchr::memmem::find;
use ring::rand::{SecureRandom as _, SystemRandom};
use zeroize::{Zeroize as _, Zeroizing};

/// The prefix of each token, by which a token is recognised for what it is.
const PREFIX: &str = "bound-secret-";

/// The number of random bytes that a token spells.
const RANDOM: usize = 16;

/// The length of a token in bytes.
pub(crate) const TOKEN: usize = PREFIX.len() + 2 * RANDOM;

/// The bound secrets of a version of a function, with their current values.
pub(crate) struct BoundSecrets {
    all: Vec<BoundSecret>,
    /// The values by index, each index a key of one byte.
    values: Secrets,
}

struct BoundSecret {
    name: SecretName,
    token: String,
    hosts: Vec<Outbound>,
}

impl fmt::Debug for BoundSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.all.iter().map(|one| &one.name);
        f.debug_list().entries(names).finish()
    }
}

/// Why secrets are not put into a head.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SecretFillError {
    /// This secret cannot be part of a header field.
    NoHeader(SecretName),
    /// The head would exceed its largest size.
    TooLarge,
}

/// A part of a field's value.
enum ValuePart<'a> {
    Text(&'a [u8]),
    /// The token of a secret, by its index.
    Token(usize),
}

/// A head that contains secrets, which are zeroed when it is dropped.
pub(crate) struct HeadWithSecrets(OutgoingHead);

impl HeadWithSecrets {
    pub(crate) fn head(&self) -> &OutgoingHead {
        &self.0
    }

    /// Returns the head, which is then not zeroed, for an embedder that handles it in its own way.
    pub(crate) fn into_head(mut self) -> OutgoingHead {
        std::mem::take(&mut self.0)
    }
}

impl Drop for HeadWithSecrets {
    fn drop(&mut self) {
        for (_, value) in &mut self.0.headers {
            value.zeroize();
        }
    }
}

impl BoundSecrets {
    /// Creates bound secrets from names, hosts and values, each with a new token.
    ///
    /// # Errors
    /// Returns an error if the kernel provides no memory or no random bytes.
    pub(crate) fn new(
        secrets: Vec<(SecretName, Vec<Outbound>, Zeroizing<Vec<u8>>)>,
    ) -> io::Result<Self> {
        let (mut all, mut opened) = (Vec::new(), Vec::new());
        for (name, hosts, value) in secrets {
            let mut random = [0; RANDOM];
            let drawn = SystemRandom::new().fill(&mut random);
            drawn.map_err(|_| io::Error::other("the system returned no random bytes"))?;
            let token = format!("{PREFIX}{:032x}", u128::from_le_bytes(random));
            all.push(BoundSecret { name, token, hosts });
            opened.push(value);
        }
        let places: Vec<u8> = (0..=u8::MAX).take(opened.len()).collect();
        let pairs = places.chunks(1).zip(&opened);
        let pairs: Vec<(&[u8], &[u8])> = pairs
            .map(|(place, value)| (place, value.as_slice()))
            .collect();
        let values = Secrets::new(&pairs)?;
        Ok(Self { all, values })
    }

    /// Returns the names and the tokens that functions read.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = (&SecretName, &str)> {
        self.all.iter().map(|one| (&one.name, one.token.as_str()))
    }

    /// Returns the head with the secrets that are bound to its destination in place of their
    /// tokens. Returns `None` if there are none to put in. Calls `tell` for each secret whose token
    /// is in the head, but which is bound to other hosts.
    ///
    /// A `TRACE` request gets no secrets, because its response shows its head. Header fields that
    /// control the framing of a message get none either, because the way in which they are
    /// processed would reveal the secret.
    ///
    /// # Errors
    /// Returns [`SecretFillError::NoHeader`] if a secret cannot be part of a header field, and
    /// [`SecretFillError::TooLarge`] if the head would become too large.
    pub(crate) fn fill(
        &self,
        head: &OutgoingHead,
        destination: &Destination,
        mut tell: impl FnMut(&SecretName),
    ) -> Result<Option<HeadWithSecrets>, SecretFillError> {
        let (mut bytes, mut used) = (0, vec![false; self.all.len()]);
        for (name, value) in &head.headers {
            bytes += name.len();
            self.each(value, |piece| match piece {
                ValuePart::Text(text) => bytes += text.len(),
                ValuePart::Token(place) => {
                    bytes += self.value(place).len();
                    if let Some(used) = used.get_mut(place) {
                        *used |= takes_secrets(name);
                    }
                }
            });
        }
        let (mut has_any, mut goes) = (false, vec![false; self.all.len()]);
        let places = self.all.iter().zip(&used).zip(&mut goes).enumerate();
        for (place, ((one, _), goes)) in places.filter(|(_, ((_, used), _))| **used) {
            if !one
                .hosts
                .iter()
                .any(|host| host.grant().allows(destination))
            {
                tell(&one.name);
                continue;
            }
            if !self.value(place).iter().all(|byte| is_of_fields(*byte)) {
                return Err(SecretFillError::NoHeader(one.name.clone()));
            }
            (*goes, has_any) = (true, true);
        }
        if !has_any || head.method.eq_ignore_ascii_case(b"TRACE") {
            return Ok(None);
        }
        if bytes as u64 > HEAD_MAX {
            return Err(SecretFillError::TooLarge);
        }
        let filled = head.headers.iter().map(|(name, value)| {
            let value = if takes_secrets(name) {
                self.filled(value, &goes)
            } else {
                value.clone()
            };
            (name.clone(), value)
        });
        Ok(Some(HeadWithSecrets(OutgoingHead {
            headers: filled.collect(),
            ..head.clone()
        })))
    }

    fn value(&self, place: usize) -> &[u8] {
        let key = u8::try_from(place).ok();
        let value = key.and_then(|key| self.values.value(&[key]));
        value.unwrap_or_default()
    }

    /// Returns a field's value with secrets in place of those tokens that are to be replaced.
    fn filled(&self, value: &[u8], goes: &[bool]) -> Vec<u8> {
        let piece = |piece: ValuePart<'_>| match piece {
            ValuePart::Token(place) if goes.get(place) == Some(&true) => self.value(place).to_vec(),
            ValuePart::Token(place) => {
                let token = self.all.get(place).map(|one| one.token.as_bytes());
                token.unwrap_or_default().to_vec()
            }
            ValuePart::Text(text) => text.to_vec(),
        };
        let mut pieces = Vec::new();
        self.each(value, |next| pieces.push(Zeroizing::new(piece(next))));
        // The capacity is exact, because growing would leave copies of secrets behind.
        let mut filled = Vec::with_capacity(pieces.iter().map(|piece| piece.len()).sum());
        for piece in &pieces {
            filled.extend_from_slice(piece);
        }
        filled
    }

    /// Passes the pieces of a field's value to `take`, once, from front to back.
    fn each<'a>(&self, value: &'a [u8], mut take: impl FnMut(ValuePart<'a>)) {
        let (mut text, mut from) = (value, 0);
        while let Some(found) = find(text.get(from..).unwrap_or_default(), PREFIX.as_bytes()) {
            let at = from + found;
            let token = text.get(at..at + TOKEN);
            let is_it = |one: &BoundSecret| Some(one.token.as_bytes()) == token;
            match self.all.iter().position(is_it) {
                Some(place) => {
                    let (before, behind) = text.split_at(at);
                    take(ValuePart::Text(before));
                    take(ValuePart::Token(place));
                    (text, from) = (behind.get(TOKEN..).unwrap_or_default(), 0);
                }
                None => from = at + PREFIX.len(),
            }
        }
        take(ValuePart::Text(text));
    }
}

/// Whether secrets may be part of a field of this name.
fn takes_secrets(name: &[u8]) -> bool {
    const NEVER: [&str; 11] = [
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    !NEVER
        .iter()
        .any(|never| never.as_bytes().eq_ignore_ascii_case(name))
}

/// Whether a field's value may contain this byte (RFC 9110, 5.5).
fn is_of_fields(byte: u8) -> bool {
    byte == b'\t' || (byte >= 32 && byte != 127)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(text: &str) -> Destination {
        let (scheme, authority) = text.split_once("://").unwrap();
        Destination::of_request(scheme.as_bytes(), authority.as_bytes()).unwrap()
    }

    fn bound(secrets: &[(&str, &str, &str)]) -> BoundSecrets {
        let secrets = secrets.iter().map(|(name, host, value)| {
            let value = Zeroizing::new(value.as_bytes().to_vec());
            let host = Outbound::new(host).unwrap();
            (SecretName::new(name).unwrap(), vec![host], value)
        });
        BoundSecrets::new(secrets.collect()).unwrap()
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
    fn a_bound_secret_is_sent_to_its_hosts_only() {
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
        // Each destination differs in its port, name or scheme, or is an address.
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
    fn a_secret_that_is_no_header_value_is_named() {
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
            assert_eq!(
                refused,
                Err(SecretFillError::NoHeader(SecretName::new("key").unwrap()))
            );
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

    #[test]
    fn fields_that_could_reveal_a_secret_get_none() {
        let bound = bound(&[("key", "https://api.test", "1234")]);
        let token = bound.tokens().next().unwrap().1.to_owned();
        let api = destination("https://api.test");
        for name in ["Trailer", "content-length", "host", "connection"] {
            let filled = bound.fill(&head(&[(name, token.clone())]), &api, |_| ());
            assert!(filled.unwrap().is_none(), "{name}");
        }
        let both = head(&[("trailer", token.clone()), ("x", token.clone())]);
        let filled = bound.fill(&both, &api, |_| ()).unwrap().unwrap();
        let values: Vec<_> = filled
            .head()
            .headers
            .iter()
            .map(|(_, value)| &value[..])
            .collect();
        assert_eq!(values, [token.as_bytes(), b"1234"]);
        let traced = OutgoingHead {
            method: b"trace".to_vec(),
            ..head(&[("x", token)])
        };
        assert!(bound.fill(&traced, &api, |_| ()).unwrap().is_none());
    }

    #[test]
    fn a_head_that_secrets_make_too_large_is_rejected_before_it_is_built() {
        let large = "x".repeat(16 << 10);
        let bound = bound(&[
            ("key", "https://api.test", &large),
            ("b", "https://api.test", "y"),
        ]);
        let tokens: Vec<_> = bound.tokens().map(|(_, token)| token.to_owned()).collect();
        let many = head(&[("a", tokens[0].repeat(1000)), ("b", tokens[1].clone())]);
        let refused = bound.fill(&many, &destination("https://api.test"), |_| ());
        assert_eq!(refused.map(|_| ()), Err(SecretFillError::TooLarge));
        // A text that looks like a token is none, and text after a replaced token is searched once.
        let odd = format!("{PREFIX}{}{PREFIX}{}", tokens[1], &tokens[1][..TOKEN - 1]);
        let filled = bound.fill(
            &head(&[("b", odd.clone())]),
            &destination("https://api.test"),
            |_| (),
        );
        let filled = filled.unwrap().unwrap();
        let expected = odd.replacen(&tokens[1], "y", 1);
        assert_eq!(filled.head().headers[0].1, expected.as_bytes());
    }

    #[test]
    fn a_secret_containing_another_token_does_not_expand_it() {
        let first = bound(&[("b", "https://api.test", "hidden")]);
        let text = first.tokens().next().unwrap().1.to_owned();
        let mut both = bound(&[
            ("a", "https://api.test", &text),
            ("b", "https://b.test", "hidden"),
        ]);
        both.all[1].token = text.clone();
        let token = both.tokens().next().unwrap().1.to_owned();
        let filled = both.fill(
            &head(&[("x", token)]),
            &destination("https://api.test"),
            |_| (),
        );
        assert_eq!(
            filled.unwrap().unwrap().head().headers[0].1,
            text.as_bytes()
        );
    }
}
