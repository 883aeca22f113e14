//! Confines what a browser stores of a response to the function that answered.
//!
//! A browser distinguishes sites by origin: scheme, host and port. Functions that are found by path
//! share an origin, and many fields of a response apply to all of it. This module removes them, or
//! restricts them to the function's path. A gateway cannot prevent what scripts of one origin do to
//! each other: that takes a host for each function (docs/threat-model.md).

use http::{HeaderMap, HeaderValue, header};

/// Fields that apply to a whole origin or host.
const OF_THE_ORIGIN: [&str; 7] = [
    // The client hints that browsers send to every function.
    "accept-ch",
    // Alternative services for the origin.
    "alt-svc",
    "clear-site-data",
    // Reports on requests to every function, sent to the function that sets the field.
    "nel",
    "report-to",
    "service-worker-allowed",
    "strict-transport-security",
];

/// Attributes of a cookie that browsers know (RFC 6265bis), except those that define its scope.
/// Others are dropped: an attribute that one client ignores may have an effect in another.
const ATTRIBUTES: [&[u8]; 7] = [
    b"expires",
    b"httponly",
    b"max-age",
    b"partitioned",
    b"priority",
    b"samesite",
    b"secure",
];

/// Maximum length of an attribute's value that browsers accept, in bytes.
const LONGEST_ATTRIBUTE: usize = 1024;

/// Confines a response to the path of the function `name`, which the client sees below `outer`: the
/// path of a trusted proxy, or nothing.
pub(super) fn to_path(headers: &mut HeaderMap, outer: &str, name: &str) {
    for field in OF_THE_ORIGIN {
        headers.remove(field);
    }
    each_cookie(headers, |cookie| {
        // By its name, the cookie applies to the whole host (RFC 6265bis, section 4.1.3.2).
        if cookie.has_prefix(b"__host-") {
            return None;
        }
        Some(cookie.write(Some(&path_below(outer, name, cookie.path))))
    });
}

/// Confines a response to its host. Cookies for the domain above it would reach the functions
/// beside this one.
pub(super) fn to_host(headers: &mut HeaderMap) {
    each_cookie(headers, |cookie| {
        let path = cookie.path.filter(|path| path.starts_with(b"/"));
        Some(cookie.write(path))
    });
}

/// Returns the path that the function meant, below the function's own.
fn path_below(outer: &str, name: &str, path: Option<&[u8]>) -> Vec<u8> {
    let own = format!("{outer}/{name}/").into_bytes();
    let full = match path {
        Some(path) if path.starts_with(&own) => path.to_vec(),
        // The path that programs in CGI style know as `SCRIPT_NAME`.
        Some(path) if own.strip_suffix(b"/") == Some(path) => own.clone(),
        Some([b'/', rest @ ..]) => [&own, rest].concat(),
        _ => own.clone(),
    };
    // If a browser ignores the path, it chooses a default, which for `/NAME` is `/`.
    if full.len() > LONGEST_ATTRIBUTE {
        return own;
    }
    full
}

fn each_cookie(headers: &mut HeaderMap, mut rewrite: impl FnMut(&Cookie<'_>) -> Option<Vec<u8>>) {
    let http::header::Entry::Occupied(mut entry) = headers.entry(header::SET_COOKIE) else {
        return;
    };
    let all: Vec<HeaderValue> = entry.iter().cloned().collect();
    let kept = all.iter().filter_map(|value| {
        let cookie = rewrite(&Cookie::read(value.as_bytes()))?;
        HeaderValue::from_bytes(&cookie).ok()
    });
    let mut kept = kept.collect::<Vec<_>>().into_iter();
    match kept.next() {
        Some(first) => {
            entry.insert(first);
            kept.for_each(|value| entry.append(value));
        }
        None => {
            entry.remove();
        }
    }
}

/// A cookie as browsers parse it (RFC 6265, section 5.2). Everything up to the first semicolon is
/// name and value, quoted or not; the last occurrence of each attribute counts.
struct Cookie<'a> {
    pair: &'a [u8],
    /// The value of `Path`, if there is one.
    path: Option<&'a [u8]>,
    /// The other attributes, each once.
    attributes: Vec<&'a [u8]>,
}

impl<'a> Cookie<'a> {
    fn read(text: &'a [u8]) -> Self {
        let mut parts = text.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let mut cookie = Self {
            pair: parts.next().unwrap_or_default(),
            path: None,
            attributes: Vec::new(),
        };
        for part in parts {
            let (name, value) = split(part);
            if name.eq_ignore_ascii_case(b"path") {
                cookie.path = Some(value);
            } else if ATTRIBUTES
                .iter()
                .any(|known| name.eq_ignore_ascii_case(known))
            {
                let is_other = |other: &&[u8]| !split(other).0.eq_ignore_ascii_case(name);
                cookie.attributes.retain(is_other);
                cookie.attributes.push(part);
            }
        }
        cookie
    }

    /// Whether the cookie's name starts with `prefix`, in any case. Browsers send a cookie without
    /// a name as its value only, so the prefix of the value counts then.
    fn has_prefix(&self, prefix: &[u8]) -> bool {
        let (name, value) = split(self.pair);
        let shown = if name.is_empty() { value } else { name };
        let beginning = shown.get(..prefix.len());
        beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(prefix))
    }

    /// Formats the cookie. The path comes first, because some clients read a limited number of
    /// attributes.
    fn write(&self, path: Option<&[u8]>) -> Vec<u8> {
        let mut text = self.pair.to_vec();
        if let Some(path) = path {
            text.extend_from_slice(b"; Path=");
            text.extend_from_slice(path);
        }
        for attribute in &self.attributes {
            text.extend_from_slice(b"; ");
            text.extend_from_slice(attribute);
        }
        text
    }
}

/// Splits an attribute into name and value; the value may be missing.
fn split(part: &[u8]) -> (&[u8], &[u8]) {
    let mut halves = part.splitn(2, |byte| *byte == b'=');
    let mut half = || halves.next().unwrap_or_default().trim_ascii();
    (half(), half())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookies(headers: &HeaderMap) -> Vec<String> {
        let all = headers.get_all("set-cookie").iter();
        all.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect()
    }

    fn confined(cookie: &[u8]) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert("set-cookie", HeaderValue::from_bytes(cookie).unwrap());
        to_path(&mut headers, "", "f");
        cookies(&headers).pop()
    }

    #[test]
    fn behind_a_proxy_a_cookie_holds_for_the_path_that_its_client_sees() {
        for (cookie, expected) in [
            ("a=b", "a=b; Path=/api/f/"),
            ("a=b; Path=/x", "a=b; Path=/api/f/x"),
            ("a=b; Path=/api/f/x", "a=b; Path=/api/f/x"),
            ("a=b; Path=/api/f", "a=b; Path=/api/f/"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("set-cookie", HeaderValue::from_static(cookie));
            to_path(&mut headers, "/api", "f");
            assert_eq!(cookies(&headers), [expected]);
        }
    }

    #[test]
    fn a_cookie_holds_for_the_functions_path() {
        for (cookie, expected) in [
            ("a=b", "a=b; Path=/f/"),
            ("a=b; Path=/", "a=b; Path=/f/"),
            ("a=b;path=/x; HttpOnly", "a=b; Path=/f/x; HttpOnly"),
            ("a=b; Path=/f/x", "a=b; Path=/f/x"),
            ("a=b; Path=/f", "a=b; Path=/f/"),
            ("a=b; Path=/fx/", "a=b; Path=/f/fx/"),
            ("a=b; Path=/f/; Path=/g/", "a=b; Path=/f/g/"),
            ("a=b; Path", "a=b; Path=/f/"),
            ("a=b; Path=\"/g/\"", "a=b; Path=/f/"),
            ("a=b; Path=g", "a=b; Path=/f/"),
            ("a=b; \t pAtH \t=\t /g ", "a=b; Path=/f/g"),
            ("a=\"b; Path=/g/\"", "a=\"b; Path=/f/g/\""),
            ("a=b; Domain=example.com", "a=b; Path=/f/"),
            ("a=b; DOMAIN = .com; domain", "a=b; Path=/f/"),
            (
                "a=b; Expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=1; Secure; SameSite=Lax; \
                 Partitioned",
                "a=b; Path=/f/; Expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=1; Secure; \
                 SameSite=Lax; Partitioned",
            ),
            (
                "a=b; SameSite=Lax; samesite=None",
                "a=b; Path=/f/; samesite=None",
            ),
            ("a=b; \u{b}Path=/; x; =Path=/; Pa th=/", "a=b; Path=/f/"),
            ("a=b, c=d; Path=/", "a=b, c=d; Path=/f/"),
            ("", "; Path=/f/"),
            (";Path=/", "; Path=/f/"),
            ("=v", "=v; Path=/f/"),
            ("__Secure-a=b; Path=/", "__Secure-a=b; Path=/f/"),
        ] {
            // A vertical tab is not allowed in a field.
            let cookie = cookie.replace('\u{b}', "\t");
            assert_eq!(
                confined(cookie.as_bytes()).as_deref(),
                Some(expected),
                "{cookie}"
            );
        }
    }

    #[test]
    fn cookies_that_hold_for_the_host_by_name_are_dropped() {
        for cookie in [
            "__Host-a=b; Path=/; Secure",
            "__hOST-a=b",
            " __Host-a = b",
            "__Host-",
            "=__Host-a=b",
            "__Host-Http-a=b",
        ] {
            assert_eq!(confined(cookie.as_bytes()), None, "{cookie}");
        }
        let mut headers = HeaderMap::new();
        for cookie in ["a=1", "__Host-b=2", "c=3"] {
            headers.append("set-cookie", HeaderValue::from_static(cookie));
        }
        to_path(&mut headers, "", "f");
        assert_eq!(cookies(&headers), ["a=1; Path=/f/", "c=3; Path=/f/"]);
    }

    #[test]
    fn no_cookie_makes_a_browser_choose_the_path_itself() {
        // Browsers ignore attributes of more than 1024 bytes, and some read only a limited number
        // of them.
        let long = format!("a=b; Path=/{}", "x".repeat(1100));
        assert_eq!(confined(long.as_bytes()).unwrap(), "a=b; Path=/f/");
        let longest = format!("a=b; Path=/{}", "x".repeat(1021));
        assert_eq!(confined(longest.as_bytes()).unwrap().len(), 10 + 1024);
        let many = format!("a=b{}; Path=/", "; Secure; x=y; HttpOnly".repeat(1000));
        assert_eq!(
            confined(many.as_bytes()).unwrap(),
            "a=b; Path=/f/; Secure; HttpOnly"
        );
        let not_ascii = b"a=\xe9; \xa0Path=/; Path=/\xe9";
        assert!(confined(not_ascii).unwrap().contains("; Path=/f/"));
    }

    #[test]
    fn random_cookies_stay_below_the_functions_path() {
        let given = std::env::var("FAASW_TEST_SEED").ok();
        let seed = given.map_or_else(|| fastrand::u64(..), |number| number.parse().unwrap());
        println!("again with FAASW_TEST_SEED={seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        const PIECES: [&str; 20] = [
            "a", "=", ";", " ", "\t", "Path", "pAtH", "=/", "/f/", "/g/", "Domain", "=x.test",
            "\"", ",", "Secure", "..", "__Host-", "%2f", "Path=/", "\u{e9}",
        ];
        for _ in 0..20_000 {
            let count = random.usize(0..16);
            let cookie: String = (0..count)
                .map(|_| PIECES[random.usize(0..PIECES.len())])
                .collect();
            let Ok(value) = HeaderValue::from_bytes(cookie.as_bytes()) else {
                continue;
            };
            let mut headers = HeaderMap::new();
            headers.insert("set-cookie", value);
            to_path(&mut headers, "", "f");
            for cookie in cookies(&headers) {
                // The attributes as a browser parses them.
                let attributes: Vec<(String, &str)> = cookie
                    .split(';')
                    .skip(1)
                    .map(|part| part.split_once('=').unwrap_or((part, "")))
                    .map(|(name, value)| (name.trim().to_lowercase(), value.trim()))
                    .collect();
                let paths: Vec<_> = attributes
                    .iter()
                    .filter(|(name, _)| name == "path")
                    .collect();
                assert!(
                    paths.len() == 1 && paths[0].1.starts_with("/f/"),
                    "{cookie:?}"
                );
                assert!(
                    !attributes.iter().any(|(name, _)| name == "domain"),
                    "{cookie:?}"
                );
            }
        }
    }

    #[test]
    fn a_function_with_a_host_keeps_its_cookies_to_it() {
        for (cookie, expected) in [
            ("a=b", "a=b"),
            ("a=b; Path=/x; Secure", "a=b; Path=/x; Secure"),
            ("a=b; Domain=example.com; Path=/", "a=b; Path=/"),
            ("a=b; domain=.f.example.com", "a=b"),
            ("__Host-a=b; Secure; Path=/", "__Host-a=b; Path=/; Secure"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("set-cookie", HeaderValue::from_static(cookie));
            to_host(&mut headers);
            assert_eq!(cookies(&headers), [expected]);
        }
        let mut headers = HeaderMap::new();
        headers.insert("clear-site-data", HeaderValue::from_static("*"));
        to_host(&mut headers);
        assert_eq!(headers.len(), 1);
    }

    #[test]
    fn headers_for_the_whole_origin_are_removed() {
        let mut headers = HeaderMap::new();
        for field in OF_THE_ORIGIN {
            headers.append(field, HeaderValue::from_static("1"));
            headers.append(field, HeaderValue::from_static("2"));
        }
        headers.insert("x-other", HeaderValue::from_static("3"));
        to_path(&mut headers, "", "f");
        assert_eq!(headers.len(), 1);
    }
}
