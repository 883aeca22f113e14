//! The response as its client sees it.
//!
//! A function's response is whatever its guest wrote. It becomes a response
//! only if HTTP allows it; what would change the framing of the message is
//! taken away, because that is the gateway's business alone.

use bytes::Bytes;
use faasw_abi::wire::ResponseHead;
use faasw_pool::InvokeError;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};

use super::{body::Body, fields::ConnectionFields};

/// Makes a client's response of a function's.
///
/// # Errors
/// [`InvokeError::BadResponse`] when it breaks a rule of HTTP,
/// [`InvokeError::ResponseTooLarge`] when the body is over `limit` bytes.
pub(crate) fn response(
    method: &Method,
    head: &ResponseHead,
    body: Bytes,
    limit: usize,
) -> Result<Response<Body>, InvokeError> {
    // A final response: an informational one is not for functions to send.
    let status = StatusCode::from_u16(head.status)
        .ok()
        .filter(|status| (200..600).contains(&status.as_u16()))
        .ok_or_else(|| bad(format!("its status is {}, not 200 to 599", head.status)))?;
    if body.len() > limit {
        return Err(InvokeError::ResponseTooLarge {
            report: format!(
                "its body is {} bytes; at most {limit} are taken",
                body.len()
            ),
        });
    }
    let mut headers = checked_fields(head)?;
    check_content_length(&mut headers, method, status, body.len())?;
    let without_body = method == Method::HEAD || forbids_body(status);
    let mut response = Response::new(if without_body {
        Body::empty()
    } else {
        body.into()
    });
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
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
        if !connection.contain(name) {
            kept.append(name.clone(), value.clone());
        }
    }
    Ok(kept)
}

/// `Content-Length` must tell the truth. It stays only where there is no body
/// to count, in the answer to HEAD; elsewhere hyper writes its own.
fn check_content_length(
    headers: &mut HeaderMap,
    method: &Method,
    status: StatusCode,
    body_bytes: usize,
) -> Result<(), InvokeError> {
    let mut announced: Option<u64> = None;
    for value in headers.get_all(header::CONTENT_LENGTH) {
        let length = value
            .to_str()
            .ok()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| bad(format!("its content-length {value:?} is not a number")))?;
        if announced.is_some_and(|other| other != length) {
            return Err(bad("it has two different content-lengths".into()));
        }
        announced = Some(length);
    }
    headers.remove(header::CONTENT_LENGTH);
    let actual = body_bytes as u64;
    if method == Method::HEAD && !forbids_body(status) {
        // What GET would have sent: the function's word, if it sent no body now.
        let length = if body_bytes == 0 {
            announced
        } else {
            Some(actual)
        };
        if let Some(length) = length {
            headers.insert(header::CONTENT_LENGTH, length.into());
        }
        return Ok(());
    }
    match announced {
        Some(length) if length != actual && !forbids_body(status) => Err(bad(format!(
            "its content-length is {length}, but its body is {actual} bytes"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16, headers: &[(&str, &str)]) -> ResponseHead {
        let pair = |(name, value): &(&str, &str)| (name.as_bytes().into(), value.as_bytes().into());
        ResponseHead {
            status,
            headers: headers.iter().map(pair).collect(),
            trailers: Vec::new(),
        }
    }

    fn answer(method: Method, head: &ResponseHead) -> Result<Response<Body>, InvokeError> {
        response(&method, head, Bytes::from_static(b"body"), 4)
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
        assert_eq!(response.body().as_bytes(), b"body");
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
                ("trailer", "x"),
                ("x-kept", "1"),
            ],
        );
        let response = answer(Method::GET, &head).unwrap();
        let names: Vec<_> = response.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["x-kept"]);
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
            (head(200, &[("content-length", "5")]), "5"),
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
    fn a_body_over_the_limit_is_refused() {
        let error = response(
            &Method::GET,
            &head(200, &[]),
            Bytes::from_static(b"body!"),
            4,
        )
        .unwrap_err();
        assert!(matches!(error, InvokeError::ResponseTooLarge { .. }));
        assert!(error.to_string().contains("5 bytes"), "{error}");
    }

    #[test]
    fn some_responses_have_no_body() {
        for status in [204, 205, 304] {
            let response = answer(Method::GET, &head(status, &[])).unwrap();
            assert!(response.body().as_bytes().is_empty());
            assert!(!response.headers().contains_key("content-length"));
        }
        let response = answer(Method::HEAD, &head(200, &[])).unwrap();
        assert!(response.body().as_bytes().is_empty());
        assert_eq!(response.headers()["content-length"], "4");
    }

    #[test]
    fn the_answer_to_head_may_announce_what_get_would_send() {
        let head = head(200, &[("content-length", "1000")]);
        let answer = response(&Method::HEAD, &head, Bytes::new(), 4).unwrap();
        assert_eq!(answer.headers()["content-length"], "1000");
    }
}
