//! The response as its client sees it.
//!
//! A guest can write anything as its function's response. It becomes a response only if HTTP allows
//! it. Fields that would change the framing of the message are removed, because only the gateway
//! sets them.

use std::collections::HashSet;

use faasw_abi::wire::ResponseHead;
use faasw_pool::{InvokeError, ReplyBody, ResponseStream};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};

use super::{body::Body, fields, fields::ConnectionFields, timing};

/// The properties of a request that affect its response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseContext {
    head_only: bool,
    /// Whether the client accepts trailers.
    trailers: bool,
    /// Whether the client requests `Server-Timing`.
    pub(crate) timing: bool,
}

impl ResponseContext {
    pub(crate) fn of(parts: &http::request::Parts) -> Self {
        // HTTP/1 clients must announce it (RFC 9110, section 6.5.1); later versions always have a
        // place for trailers.
        let mut accepted = parts.headers.get_all(header::TE).iter();
        Self {
            head_only: parts.method == Method::HEAD,
            trailers: parts.version > http::Version::HTTP_11
                || accepted.any(|value| {
                    let mut codings = value.as_bytes().split(|byte| *byte == b',');
                    codings.any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
                }),
            timing: timing::wants_timing(&parts.headers),
        }
    }
}

/// Makes a client's response from a function's.
///
/// # Errors
/// Returns [`InvokeError::BadResponse`] if the response breaks a rule of HTTP.
pub(crate) fn response(
    asked: ResponseContext,
    head: &ResponseHead,
    body: ReplyBody,
) -> Result<Response<Body>, InvokeError> {
    // Only final responses: functions must not send informational ones.
    let status = StatusCode::from_u16(head.status)
        .ok()
        .filter(|status| (200..600).contains(&status.as_u16()))
        .ok_or_else(|| bad(format!("its status is {}, not 200 to 599", head.status)))?;
    let mut headers = checked_fields(head)?;
    let declared = fields::take_content_length(&mut headers).map_err(bad)?;
    let forbids_body = forbids_body(status);
    let body = if forbids_body || asked.head_only {
        // The length that GET would have sent, according to the function. A 304 has the length that
        // a 200 would have (RFC 9110, section 8.6). A 204 must not have the field, and a 205 has no
        // content.
        let has_length = !forbids_body || status == StatusCode::NOT_MODIFIED;
        if let Some(length) = declared.filter(|_| has_length) {
            headers.insert(header::CONTENT_LENGTH, length.into());
        }
        ignore(body);
        Body::empty()
    } else {
        match body {
            // The actual length is sent, whatever was announced.
            ReplyBody::Whole { bytes, trailers } => {
                let trailers = fields::trailers(&trailers);
                let trailers = Some(trailers).filter(|all| asked.trailers && !all.is_empty());
                if let Some(trailers) = &trailers {
                    announce(&mut headers, trailers.keys());
                }
                Body::whole(bytes, trailers)
            }
            ReplyBody::Stream(parts) => {
                let timing = asked.timing && asked.trailers && declared.is_none();
                if timing {
                    announce(&mut headers, [&timing::SERVER_TIMING]);
                }
                if let Some(length) = declared {
                    headers.insert(header::CONTENT_LENGTH, length.into());
                }
                Body::stream(parts, declared, timing)
            }
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

/// Announces trailers that are not announced yet.
fn announce<'a>(headers: &mut HeaderMap, names: impl IntoIterator<Item = &'a HeaderName>) {
    let named: HashSet<HeaderName> = headers
        .get_all(header::TRAILER)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|token| HeaderName::from_bytes(token.trim_ascii()).ok())
        .collect();
    for name in names {
        if !named.contains(name) {
            headers.append(header::TRAILER, HeaderValue::from(name.clone()));
        }
    }
}

/// Drains a body that is not sent, so that the function can finish.
fn ignore(body: ReplyBody) {
    async fn drain(mut parts: ResponseStream) {
        while std::future::poll_fn(|context| parts.poll_part(context))
            .await
            .is_some()
        {}
    }
    if let ReplyBody::Stream(parts) = body {
        tokio::spawn(drain(parts));
    }
}

fn bad(report: String) -> InvokeError {
    InvokeError::BadResponse { report }
}

fn forbids_body(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED
    )
}

fn checked_fields(head: &ResponseHead) -> Result<HeaderMap, InvokeError> {
    let mut fields = HeaderMap::new();
    for (name, value) in &head.headers {
        let shown = || String::from_utf8_lossy(name.get(..80).unwrap_or(name)).into_owned();
        let parsed = HeaderName::from_bytes(name)
            .map_err(|_| bad(format!("{:?} is not a field name", shown())))?;
        let value = HeaderValue::from_bytes(value).map_err(|_| {
            bad(format!(
                "the value of the field {:?} is not allowed",
                shown()
            ))
        })?;
        fields
            .try_append(parsed, value)
            .map_err(|_| bad("it has too many fields".into()))?;
    }
    let connection = ConnectionFields::of(&fields);
    let mut kept = HeaderMap::new();
    for (name, value) in &fields {
        // `Trailer` announces fields to the client, not to one connection.
        if !connection.contain(name) || name == header::TRAILER {
            kept.append(name.clone(), value.clone());
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn head(status: u16, headers: &[(&str, &str)]) -> ResponseHead {
        let pair = |(name, value): &(&str, &str)| (name.as_bytes().into(), value.as_bytes().into());
        ResponseHead {
            status,
            headers: headers.iter().map(pair).collect(),
        }
    }

    fn asked(method: &Method) -> ResponseContext {
        ResponseContext {
            head_only: method == Method::HEAD,
            trailers: true,
            timing: false,
        }
    }

    fn answer(method: Method, head: &ResponseHead) -> Result<Response<Body>, InvokeError> {
        let body = ReplyBody::Whole {
            bytes: "body".into(),
            trailers: vec![(b"x-sum".to_vec(), b"1".to_vec())],
        };
        response(asked(&method), head, body)
    }

    #[test]
    fn a_good_response_passes() {
        let head = head(
            201,
            &[
                ("Set-Cookie", "a"),
                ("set-cookie", "b"),
                ("Content-Length", "4"),
            ],
        );
        let response = answer(Method::GET, &head).unwrap();
        assert_eq!(response.status(), 201);
        assert_eq!(response.headers().get_all("set-cookie").iter().count(), 2);
        assert_eq!(response.body().as_bytes(), Some(&b"body"[..]));
    }

    #[test]
    fn a_function_cannot_set_the_framing() {
        let head = head(
            200,
            &[
                ("transfer-encoding", "chunked"),
                ("connection", "close, x-hop"),
                ("x-hop", "1"),
                ("upgrade", "h2c"),
                ("keep-alive", "1"),
                ("x-kept", "1"),
            ],
        );
        let response = answer(Method::GET, &head).unwrap();
        let names: Vec<_> = response.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["x-kept", "trailer"]);
    }

    #[test]
    fn a_head_with_many_connection_names_is_processed_quickly() {
        // The names and fields fill a head.
        let names = "a,".repeat(16 << 10) + "x-last";
        let mut fields = vec![("connection".to_owned(), names)];
        fields.extend((0..3000).map(|number| (format!("x{number}"), String::new())));
        let fields: Vec<(&str, &str)> = fields.iter().map(|(a, b)| (&**a, &**b)).collect();
        let head = head(200, &fields);
        // Pairwise comparison would take 50 million comparisons.
        let answers: Vec<Duration> = (0..5)
            .map(|_| {
                let started = Instant::now();
                assert_eq!(answer(Method::GET, &head).unwrap().headers().len(), 3001);
                started.elapsed()
            })
            .collect();
        let fastest = answers.iter().min().unwrap();
        assert!(*fastest < Duration::from_millis(300), "{answers:?}");
    }

    #[test]
    fn trailers_are_announced_and_remove_the_content_length() {
        let answer = |head: &ResponseHead| answer(Method::GET, head).unwrap();
        for head in [head(200, &[("trailer", "X-Sum")]), head(200, &[])] {
            let response = answer(&head);
            assert_eq!(response.headers().get_all("trailer").iter().count(), 1);
            assert_eq!(http_body::Body::size_hint(response.body()).exact(), None);
        }
        let deaf = ResponseContext {
            trailers: false,
            ..asked(&Method::GET)
        };
        let body = ReplyBody::Whole {
            bytes: "body".into(),
            trailers: vec![(b"x-sum".to_vec(), b"1".to_vec())],
        };
        let response = response(deaf, &head(200, &[]), body).unwrap();
        assert!(!response.headers().contains_key("trailer"));
        assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(4));
    }

    #[test]
    fn responses_that_break_http_are_refused() {
        for (head, word) in [
            (head(100, &[]), "100"),
            (head(199, &[]), "199"),
            (head(600, &[]), "600"),
            (head(0, &[]), "status"),
            (head(200, &[("a b", "1")]), "a b"),
            (head(200, &[("", "1")]), "field name"),
            (head(200, &[("x-split", "a\r\nb: c")]), "x-split"),
            (head(200, &[("content-length", "+4")]), "number"),
            (
                head(200, &[("content-length", "4"), ("content-length", "5")]),
                "two",
            ),
        ] {
            let error = answer(Method::GET, &head).unwrap_err();
            assert!(matches!(error, InvokeError::BadResponse { .. }), "{error}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn a_complete_body_has_a_content_length() {
        let response = answer(Method::GET, &head(200, &[("content-length", "5")])).unwrap();
        assert!(!response.headers().contains_key("content-length"));
        assert_eq!(response.body().as_bytes(), Some(&b"body"[..]));
    }

    #[test]
    fn some_responses_have_no_body() {
        for status in [204, 205, 304] {
            let response = answer(Method::GET, &head(status, &[])).unwrap();
            assert_eq!(response.body().as_bytes(), Some(&[][..]));
            assert!(!response.headers().contains_key("content-length"));
        }
        let response = answer(Method::HEAD, &head(200, &[])).unwrap();
        assert_eq!(response.body().as_bytes(), Some(&[][..]));
        assert!(!response.headers().contains_key("content-length"));
    }

    #[test]
    fn only_a_304_keeps_its_content_length_without_a_body() {
        for method in [Method::GET, Method::HEAD] {
            for (status, announced) in [(204, None), (205, None), (304, Some("1234"))] {
                let head = head(status, &[("content-length", "1234"), ("etag", "\"v7\"")]);
                let response = answer(method.clone(), &head).unwrap();
                assert_eq!(response.body().as_bytes(), Some(&[][..]));
                assert_eq!(response.headers()["etag"], "\"v7\"");
                let length = response.headers().get("content-length");
                let length = length.map(|length| length.to_str().unwrap());
                assert_eq!(length, announced, "{method} {status}");
            }
        }
    }

    #[test]
    fn a_response_to_head_may_announce_a_length() {
        let head = head(200, &[("content-length", "1000")]);
        let answer = answer(Method::HEAD, &head).unwrap();
        assert_eq!(answer.headers()["content-length"], "1000");
    }
}
