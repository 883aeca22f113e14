//! The host that a request is for.

use http::{Request, header, uri::Authority};

/// Returns the host of a request's target, or of its `Host` field (RFC 9112, section 3.2.2): in
/// lower case, without port and without a name's trailing dot.
pub(super) fn host_of<B>(request: &Request<B>) -> Option<String> {
    let host = match request.uri().authority() {
        Some(authority) => authority.host().to_ascii_lowercase(),
        None => {
            let value = request.headers().get(header::HOST)?;
            let authority = Authority::try_from(value.as_bytes()).ok()?;
            authority.host().to_ascii_lowercase()
        }
    };
    let host = host.strip_suffix('.').map(str::to_owned).unwrap_or(host);
    Some(host).filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equivalent_host_fields_give_one_host() {
        let host = |target: &str, field: &str| {
            let request = Request::get(target).header("host", field);
            host_of(&request.body(()).unwrap())
        };
        for field in ["a.test", "A.Test", "a.test.", "a.test:80", "a.test.:80"] {
            assert_eq!(host("/", field).as_deref(), Some("a.test"), "{field}");
        }
        assert_eq!(
            host("http://B.test:1/", "a.test").as_deref(),
            Some("b.test")
        );
        assert_eq!(host("/", "[::1]:80").as_deref(), Some("[::1]"));
        for field in ["", ".", "a b", "/"] {
            assert_eq!(host("/", field), None, "{field}");
        }
        assert_eq!(host_of(&Request::get("/").body(()).unwrap()), None);
    }
}
