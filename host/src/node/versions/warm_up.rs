//! Warm-up requests, which the node makes itself, in the form that the pool takes.

use bytes::Bytes;
use faasw_client::{FunctionName, FunctionOptions, WarmUpRequest};
use faasw_pool::WarmUp;
use http::{Request, uri::Scheme};

use crate::message::{Arrival, request_head};

/// Returns the warm-up requests of a function. Each is for the host that it names. If the function
/// owns hosts, the requests' paths begin at the root.
pub(super) fn warm_ups(name: &FunctionName, options: &FunctionOptions) -> Vec<WarmUp> {
    let has_host = !options.hosts().is_empty();
    let requests = options.warm_ups().iter();
    requests
        .map(|request| warm_up(name, request, has_host))
        .collect()
}

fn warm_up(name: &FunctionName, request: &WarmUpRequest, has_host: bool) -> WarmUp {
    let body = Bytes::copy_from_slice(request.body().as_bytes());
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method = request.method().clone();
    parts.uri = request.path().clone().into();
    parts.headers = request.headers().clone();
    parts.extensions.insert(Arrival {
        scheme: Scheme::HTTP,
        has_host,
    });
    WarmUp {
        head: request_head(name.as_str(), &parts, Some(body.len() as u64), None),
        body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_requests_look_like_client_requests() {
        let name = FunctionName::new("f").unwrap();
        let text = "/a?b\nContent-Type: text/plain\nContent-Length: 9\nX-Faasw-Timing: 1\n\nabc";
        let options = FunctionOptions::default().warm_up(WarmUpRequest::new(text).unwrap());
        let [WarmUp { head, body }] = warm_ups(&name, &options).try_into().unwrap();
        assert_eq!(body, "abc");
        assert_eq!(head.method, b"POST");
        assert_eq!(head.path_and_query, b"/a?b");
        assert_eq!(head.script_name, b"/f");
        assert_eq!(head.authority, b"localhost");
        let field = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        let expected = [
            field("content-type", "text/plain"),
            field("host", "localhost"),
            field("content-length", "3"),
        ];
        assert_eq!(head.headers, expected);
    }
}
