//! What a registry wants to be shown, and where that is had: `WWW-Authenticate`, read.

use http::{HeaderMap, HeaderValue, header::WWW_AUTHENTICATE};
use serde::Deserialize;

/// How a registry wants its clients to be known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// By a token of this server.
    Bearer {
        /// Where tokens are had.
        realm: String,
        /// What they are to be for, in that server's words.
        service: Option<String>,
    },
    /// By name and password.
    Basic,
}

impl Challenge {
    /// What a response asks for: a token rather than a password. Nothing where it is neither.
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

/// What a server of tokens answers, by either of its names.
#[derive(Deserialize)]
pub(crate) struct TokenAnswer {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
}

impl TokenAnswer {
    /// The token as it is shown to a registry; nothing where there is none, or one that no line
    /// could have.
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
    fn a_token_is_what_a_line_can_have() {
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
