//! Parses a registry's requirements for authorization (`WWW-Authenticate`) and the answers of token
//! servers.

use http::{HeaderMap, HeaderValue, header::WWW_AUTHENTICATE};
use serde::Deserialize;

/// The kind of authorization that a registry requires.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// A token from a token server.
    Bearer {
        /// The address of the token server.
        realm: String,
        /// The name of the service for which the token is, as the token server knows it.
        service: Option<String>,
    },
    /// A user name and password.
    Basic,
}

impl Challenge {
    /// Returns the challenge of a response; prefers a token to a password. Returns `None` if there
    /// is neither.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut found = None;
        for value in headers.get_all(WWW_AUTHENTICATE) {
            let Ok(text) = value.to_str() else { continue };
            let Ok(challenges) = http_auth::parse_challenges(text) else {
                continue;
            };
            for challenge in challenges {
                if challenge.scheme.eq_ignore_ascii_case("Basic") {
                    found = Some(Self::Basic);
                }
                if !challenge.scheme.eq_ignore_ascii_case("Bearer") {
                    continue;
                }
                let parameter = |name: &str| {
                    let mut all = challenge.params.iter();
                    let found = all.find(|(key, _)| key.eq_ignore_ascii_case(name));
                    found.map(|(_, value)| value.to_unescaped())
                };
                if let Some(realm) = parameter("realm") {
                    let service = parameter("service");
                    return Some(Self::Bearer { realm, service });
                }
            }
        }
        found
    }
}

/// The answer of a token server, which has the token under either name.
#[derive(Deserialize)]
pub(crate) struct TokenAnswer {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
}

impl TokenAnswer {
    /// Returns the token as an `Authorization` header. Returns `None` if there is no token, or one
    /// that is not valid in a header.
    pub(crate) fn header(self) -> Option<HeaderValue> {
        let there = |text: &String| !text.is_empty();
        let token = self
            .token
            .filter(there)
            .or(self.access_token.filter(there))?;
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn challenge(lines: &[&str]) -> Option<Challenge> {
        let mut headers = HeaderMap::new();
        for line in lines {
            let value = HeaderValue::from_bytes(line.as_bytes()).unwrap();
            headers.append(WWW_AUTHENTICATE, value);
        }
        Challenge::of(&headers)
    }

    #[test]
    fn a_token_is_preferred_to_a_password() {
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer {
                realm: realm.to_owned(),
                service: service.map(ToOwned::to_owned),
            })
        };
        let both = [
            r#"Basic realm="r""#,
            r#"bearer realm="https://a.test/t",service="s, x",scope="y""#,
        ];
        assert_eq!(challenge(&both), bearer("https://a.test/t", Some("s, x")));
        let one = [r#"Basic realm="r", Bearer realm="https://a.test/\"t""#];
        assert_eq!(challenge(&one), bearer("https://a.test/\"t", None));
        assert_eq!(challenge(&[r#"Basic realm="r""#]), Some(Challenge::Basic));
        for nothing in [
            &[][..],
            &["Bearer"],
            &["Bearer realm"],
            &["Negotiate"],
            &["\u{e9}"],
            &["Bearer service=\"x\""],
        ] {
            assert_eq!(challenge(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn a_token_must_fit_a_header_line() {
        let header = |json: &str| serde_json::from_str::<TokenAnswer>(json).unwrap().header();
        let bearer = Some(HeaderValue::from_static("Bearer x.y"));
        assert_eq!(header(r#"{"token": "x.y", "expires_in": 5}"#), bearer);
        assert_eq!(header(r#"{"token": "", "access_token": "x.y"}"#), bearer);
        for nothing in [
            "{}",
            r#"{"token": ""}"#,
            r#"{"token": "a\r\nHost: b"}"#,
            r#"{"token": "a\u0000"}"#,
        ] {
            assert_eq!(header(nothing), None, "{nothing}");
        }
    }
}
