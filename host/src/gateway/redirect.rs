//! The plain listener beside a TLS listener: it redirects clients to https.

use std::{future::Future, sync::Arc};

use faasw_client::Problem;
use http::{HeaderValue, Request, Response, StatusCode, header};
use percent_encoding::{CONTROLS, utf8_percent_encode};

use super::{
    answer::{ConnectionFate, answer_without_function, no_content},
    host::host_of,
    rejection::rejection,
};
use crate::{
    message::{Body, Correlation},
    server::{Handler, RequestBodyStream, Tls},
};

/// The default port of https.
const HTTPS: u16 = 443;

/// Redirects to https with status 308, for hosts that the node has a certificate for. The client
/// chooses the `Host` field, so the target of a redirect must not follow it unchecked.
#[derive(Clone, Debug)]
pub(crate) struct Redirect {
    tls: Arc<Tls>,
    /// The port of the listener with TLS.
    port: u16,
}

impl Redirect {
    pub(crate) fn new(tls: Arc<Tls>, port: u16) -> Self {
        Self { tls, port }
    }

    fn response<B>(&self, request: &Request<B>) -> Result<Response<Body>, Problem> {
        let uri = request.uri();
        if uri.path() == "*" {
            return Ok(no_content());
        }
        let host = host_of(request).filter(|host| self.tls.has_certificate_for(host));
        let location = host.and_then(|host| {
            let port = match self.port {
                HTTPS => String::new(),
                port => format!(":{port}"),
            };
            let target = uri.path_and_query().map_or("/", |target| target.as_str());
            // A target may contain UTF-8, which a URL must not.
            let target = utf8_percent_encode(target, CONTROLS);
            HeaderValue::try_from(format!("https://{host}{port}{target}")).ok()
        });
        let location = location.ok_or_else(no_certificate)?;
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
        response.headers_mut().insert(header::LOCATION, location);
        Ok(response)
    }
}

impl Handler for Redirect {
    fn answer(
        self,
        request: Request<RequestBodyStream>,
        correlation: Correlation,
    ) -> impl Future<Output = Response<Body>> + Send {
        let head_only = request.method() == http::Method::HEAD;
        let (response, afterwards) = match rejection(&request) {
            Some(problem) => (Err(problem), ConnectionFate::Close),
            None => (self.response(&request), ConnectionFate::GoOn),
        };
        let refused = |problem: Problem| problem.response(correlation.request_id, head_only);
        let response = response.unwrap_or_else(refused);
        answer_without_function(request, response, afterwards)
    }
}

fn no_certificate() -> Problem {
    Problem::new(
        StatusCode::MISDIRECTED_REQUEST,
        "no-certificate",
        "No certificate for this host",
        "this address only redirects to https, and the node has no certificate for the requested \
         host",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::CertificatePaths;

    fn redirect(port: u16, names: &[&str]) -> Redirect {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<String> = names.iter().copied().map(String::from).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let pair = CertificatePaths {
            certificate: folder.path().join("cert.pem"),
            key: folder.path().join("key.pem"),
        };
        std::fs::write(&pair.certificate, made.cert.pem()).unwrap();
        std::fs::write(&pair.key, made.signing_key.serialize_pem()).unwrap();
        Redirect::new(Arc::new(Tls::new(vec![pair]).unwrap()), port)
    }

    fn location(redirect: &Redirect, host: &str, target: &str) -> Result<String, u16> {
        let request = Request::get(target).header("host", host).body(()).unwrap();
        let response = redirect.response(&request);
        let response = response.map_err(|problem| problem.status.as_u16())?;
        assert_eq!(response.status(), 308);
        Ok(response.headers()["location"].to_str().unwrap().into())
    }

    #[test]
    fn the_target_is_the_same_with_the_port_of_tls() {
        let names = ["a.test", "*.b.test", "127.0.0.1", "::1"];
        for (port, ending) in [(443, ""), (8443, ":8443")] {
            let redirect = redirect(port, &names);
            for (host, target, expected) in [
                ("a.test", "/x/y?z", "https://a.test{}/x/y?z"),
                ("A.test:80", "/", "https://a.test{}/"),
                (
                    "a.test.:8080",
                    "//evil.test/",
                    "https://a.test{}//evil.test/",
                ),
                ("f.b.test", "/%0d%0a", "https://f.b.test{}/%0d%0a"),
                ("127.0.0.1:1", "/é", "https://127.0.0.1{}/%C3%A9"),
                ("[::1]:80", "/", "https://[::1]{}/"),
                ("ignored.test", "http://a.test:80/q", "https://a.test{}/q"),
            ] {
                let expected = expected.replace("{}", ending);
                assert_eq!(location(&redirect, host, target), Ok(expected), "{host}");
            }
        }
    }

    #[test]
    fn a_redirect_never_targets_a_host_chosen_by_the_client() {
        let redirect = redirect(443, &["a.test", "*.b.test"]);
        for host in [
            "evil.test",
            "a.test.evil.test",
            "evil.test:443",
            "b.test",
            "x.y.b.test",
            "127.0.0.1",
            "*.b.test",
            "",
        ] {
            assert_eq!(location(&redirect, host, "/"), Err(421), "{host}");
        }
    }
}
