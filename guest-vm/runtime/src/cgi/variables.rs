//! The environment variables of a request (RFC 3875, section 4.1).

use alloc::vec::Vec;

use faasw_abi::wire::{Pair, RequestHead};

/// Header fields without an `HTTP_` variable.
const UNSEEN: [&[u8]; 7] = [
    // These have variables of their own.
    b"content-length",
    b"content-type",
    // Programs use HTTP_PROXY as the proxy to connect to ("httpoxy").
    b"proxy",
    // These concern the connection between the client and the proxy.
    b"proxy-authorization",
    b"connection",
    b"transfer-encoding",
    b"te",
];

/// Returns the CGI variables of a request; none occurs twice.
pub(crate) fn variables(request: &RequestHead) -> Vec<Pair> {
    let (path, query) = split_query(&request.path_and_query);
    let (name, port) = split_port(&request.authority, &request.scheme);
    let header = |name: &[u8]| {
        request
            .headers
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_slice())
    };

    let mut variables = Vec::new();
    let mut set = |name: &str, value: &[u8]| {
        // A NUL would end the variable early for C programs.
        let value = value.iter().copied().filter(|byte| *byte != 0).collect();
        variables.push((name.as_bytes().to_vec(), value));
    };
    set("GATEWAY_INTERFACE", b"CGI/1.1");
    set(
        "SERVER_SOFTWARE",
        concat!("faasw/", env!("CARGO_PKG_VERSION")).as_bytes(),
    );
    set("SERVER_PROTOCOL", &request.protocol);
    set("SERVER_NAME", name);
    set("SERVER_PORT", port);
    set("REQUEST_METHOD", &request.method);
    set("SCRIPT_NAME", &request.script_name);
    set("PATH_INFO", &percent_decoded(path));
    set("QUERY_STRING", query);
    // The RFC does not define this variable, but servers have it in common: it alone has the path
    // as it was sent.
    set(
        "REQUEST_URI",
        &[&*request.script_name, &*request.path_and_query].concat(),
    );
    set("REMOTE_ADDR", &request.remote_address);
    set("REMOTE_HOST", &request.remote_address);
    if request.scheme == b"https" {
        set("HTTPS", b"on");
    }
    for (variable, field) in [
        ("CONTENT_TYPE", b"content-type".as_slice()),
        ("CONTENT_LENGTH", b"content-length"),
    ] {
        if let Some(value) = header(field) {
            set(variable, value);
        }
    }
    add_headers(&mut variables, &request.headers);
    variables
}

/// Adds an `HTTP_` variable for each field. The values of a repeated field are joined as RFC 9110
/// and, for cookies, RFC 6265 specify.
fn add_headers(variables: &mut Vec<Pair>, headers: &[Pair]) {
    let others = variables.len();
    for (field, value) in headers {
        if UNSEEN
            .iter()
            .any(|unseen| field.eq_ignore_ascii_case(unseen))
            || !has_variable(field)
        {
            continue;
        }
        let mut name = b"HTTP_".to_vec();
        name.extend(field.iter().map(|byte| match byte {
            b'-' => b'_',
            byte => byte.to_ascii_uppercase(),
        }));
        let known = variables
            .iter_mut()
            .skip(others)
            .find(|(other, _)| *other == name);
        match known {
            Some((_, joined)) => {
                joined.extend_from_slice(if name == b"HTTP_COOKIE" { b"; " } else { b", " });
                joined.extend_from_slice(value);
            }
            None => variables.push((name, value.clone())),
        }
    }
}

/// Returns whether a field has a variable that no other one has. `X_Real_IP` could be mistaken for
/// the `X-Real-IP` that a proxy has set, and `Content_Length` for a length.
fn has_variable(field: &[u8]) -> bool {
    field
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

/// Returns the path, and the part after its first `?`.
fn split_query(path_and_query: &[u8]) -> (&[u8], &[u8]) {
    let mut parts = path_and_query.splitn(2, |byte| *byte == b'?');
    (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    )
}

/// Returns host and port of an authority, with the scheme's default port.
fn split_port<'a>(authority: &'a [u8], scheme: &[u8]) -> (&'a [u8], &'a [u8]) {
    let default: &[u8] = if scheme == b"https" { b"443" } else { b"80" };
    let colon = authority.iter().rposition(|byte| *byte == b':');
    match colon.and_then(|colon| authority.split_at_checked(colon)) {
        // The colons of an IPv6 address are inside its brackets, and therefore not before digits
        // only.
        Some((host, [b':', port @ ..]))
            if !port.is_empty() && port.iter().all(u8::is_ascii_digit) && is_host(host) =>
        {
            (host, port)
        }
        Some((host, b":")) if is_host(host) => (host, default),
        _ => (authority, default),
    }
}

/// Returns whether a colon after `host` begins a port.
fn is_host(host: &[u8]) -> bool {
    !host.contains(&b':') || host.ends_with(b"]")
}

/// Decodes the percent escapes of a path. Invalid escapes stay as they are. So does an escaped NUL,
/// because programs could not distinguish it from the end.
fn percent_decoded(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut rest = path;
    while let [first, tail @ ..] = rest {
        rest = tail;
        let escaped = match (*first, tail) {
            (b'%', [high, low, after @ ..]) => hex(*high, *low)
                .filter(|byte| *byte != 0)
                .map(|byte| (byte, after)),
            _ => None,
        };
        match escaped {
            Some((byte, after)) => {
                decoded.push(byte);
                rest = after;
            }
            None => decoded.push(*first),
        }
    }
    decoded
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(path: &str, headers: &[(&str, &str)]) -> RequestHead {
        RequestHead {
            method: b"POST".to_vec(),
            scheme: b"http".to_vec(),
            authority: b"example.org:8080".to_vec(),
            path_and_query: path.as_bytes().to_vec(),
            script_name: b"/fn".to_vec(),
            remote_address: b"192.0.2.7".to_vec(),
            protocol: b"HTTP/1.1".to_vec(),
            headers: headers
                .iter()
                .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
                .collect(),
        }
    }

    fn get(variables: &[Pair], name: &str) -> Option<alloc::string::String> {
        let mut found = variables
            .iter()
            .filter(|(other, _)| other == name.as_bytes());
        let value = found.next().map(|(_, value)| value.clone());
        assert!(found.next().is_none(), "{name} is set twice");
        value.map(|value| alloc::string::String::from_utf8(value).unwrap())
    }

    #[test]
    fn every_variable_of_the_rfc_is_set() {
        let variables = variables(&request(
            "/a%20b/c?x=%20&y",
            &[("content-type", "text/plain"), ("content-length", "3")],
        ));
        for (name, value) in [
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("REQUEST_METHOD", "POST"),
            ("SCRIPT_NAME", "/fn"),
            ("PATH_INFO", "/a b/c"),
            ("QUERY_STRING", "x=%20&y"),
            ("REQUEST_URI", "/fn/a%20b/c?x=%20&y"),
            ("CONTENT_TYPE", "text/plain"),
            ("CONTENT_LENGTH", "3"),
            ("SERVER_NAME", "example.org"),
            ("SERVER_PORT", "8080"),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("REMOTE_ADDR", "192.0.2.7"),
            ("REMOTE_HOST", "192.0.2.7"),
        ] {
            assert_eq!(get(&variables, name).as_deref(), Some(value), "{name}");
        }
        assert!(
            get(&variables, "SERVER_SOFTWARE")
                .unwrap()
                .starts_with("faasw/")
        );
        assert_eq!(get(&variables, "HTTP_CONTENT_LENGTH"), None);
    }

    #[test]
    fn the_query_is_set_even_when_there_is_none() {
        let variables = variables(&request("/", &[]));
        assert_eq!(get(&variables, "QUERY_STRING").as_deref(), Some(""));
        assert_eq!(get(&variables, "CONTENT_LENGTH"), None);
        assert_eq!(get(&variables, "HTTPS"), None);
    }

    #[test]
    fn no_field_passes_for_another_one() {
        let fields = [
            ("x-real-ip", "1"),
            ("x_real_ip", "2"),
            ("content_length", "3"),
            ("x.y", "4"),
        ];
        let variables = variables(&request("/", &fields));
        assert_eq!(get(&variables, "HTTP_X_REAL_IP").as_deref(), Some("1"));
        assert_eq!(get(&variables, "HTTP_CONTENT_LENGTH"), None);
        assert_eq!(get(&variables, "HTTP_X.Y"), None);
    }

    #[test]
    fn headers_become_variables_and_repeated_ones_are_joined() {
        let variables = variables(&request(
            "/",
            &[
                ("x-a-b", "1"),
                ("X-A-B", "2"),
                ("cookie", "a=1"),
                ("cookie", "b=2"),
                ("authorization", "Basic x"),
                ("proxy", "http://evil"),
                ("proxy-authorization", "Basic y"),
            ],
        ));
        assert_eq!(get(&variables, "HTTP_X_A_B").as_deref(), Some("1, 2"));
        assert_eq!(get(&variables, "HTTP_COOKIE").as_deref(), Some("a=1; b=2"));
        assert_eq!(
            get(&variables, "HTTP_AUTHORIZATION").as_deref(),
            Some("Basic x")
        );
        assert_eq!(get(&variables, "HTTP_PROXY"), None);
        assert_eq!(get(&variables, "HTTP_PROXY_AUTHORIZATION"), None);
    }

    #[test]
    fn escapes_that_are_none_stay_as_they_are() {
        for (path, decoded) in [
            ("/%41", "/A"),
            ("/%4", "/%4"),
            ("/%", "/%"),
            ("/%zz", "/%zz"),
            ("/%+1", "/%+1"),
            ("/%00x", "/%00x"),
            ("/%2F%2f", "///"),
            ("/%%41", "/%A"),
            ("", ""),
        ] {
            assert_eq!(
                percent_decoded(path.as_bytes()),
                decoded.as_bytes(),
                "{path}"
            );
        }
    }

    #[test]
    fn the_port_is_found_behind_every_kind_of_host() {
        for (authority, host, port) in [
            ("a:1", "a", "1"),
            ("a", "a", "80"),
            ("a:", "a", "80"),
            ("[::1]:8080", "[::1]", "8080"),
            ("[::1]", "[::1]", "80"),
            ("::1", "::1", "80"),
            ("", "", "80"),
        ] {
            assert_eq!(
                split_port(authority.as_bytes(), b"http"),
                (host.as_bytes(), port.as_bytes()),
                "{authority}"
            );
        }
        assert_eq!(split_port(b"a", b"https").1, b"443");
    }
}
