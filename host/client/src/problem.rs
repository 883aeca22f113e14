//! Problem bodies (RFC 9457), the format of every failure that a client sees.
//!
//! The type of a problem is stable and for programs; its detail is for people. The members
//! `function` and `instance` are present if they are known.

use std::borrow::Cow;

use faasw_common::text::{Indented, Json};
use http::{HeaderValue, Response, StatusCode, header};
use serde::{Deserialize, Serialize};

use crate::RequestId;

/// Media type of a problem body.
const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");

/// A problem from which a response is made.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The last part of the type: `timed-out` in `urn:faasw:problem:timed-out`.
    pub slug: &'static str,
    /// The title, equal for all problems of one type.
    pub title: &'static str,
    /// The response's status.
    pub status: StatusCode,
    /// The cause of this occurrence, and what to do about it.
    pub detail: Cow<'static, str>,
    /// The function that was to handle the request, if it is known.
    pub function: Option<String>,
    /// The number of the instance in which the problem occurred, if it is known.
    pub instance: Option<u64>,
    /// The number of seconds after which a retry makes sense.
    pub retry_after: Option<u32>,
}

/// The slug of a problem, stored in the extensions of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProblemSlug(pub &'static str);

/// A problem body.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProblemBody<'a> {
    /// `urn:faasw:problem:` followed by the slug.
    pub r#type: Cow<'a, str>,
    /// The title, equal for all problems of one type.
    pub title: Cow<'a, str>,
    /// The response's status.
    pub status: u16,
    /// The cause of this occurrence, and what to do about it.
    pub detail: Cow<'a, str>,
    /// The function that was to handle the request, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<Cow<'a, str>>,
    /// The instance in which the problem occurred, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The id of the request, if it is known. Logs have the same id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
}

impl Problem {
    /// Creates a problem without a function.
    #[must_use]
    pub fn new(
        status: StatusCode,
        slug: &'static str,
        title: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            slug,
            title,
            status,
            detail: detail.into(),
            function: None,
            instance: None,
            retry_after: None,
        }
    }

    /// Sets the function of the problem.
    #[must_use]
    pub fn of_function(mut self, name: &str) -> Self {
        self.function = Some(name.into());
        self
    }

    /// Creates the response to a request. With `head_only`, as for HEAD, it has no body.
    #[must_use]
    pub fn response<B: From<Vec<u8>> + Default>(
        &self,
        request_id: RequestId,
        head_only: bool,
    ) -> Response<B> {
        let members = ProblemBody {
            r#type: format!("urn:faasw:problem:{}", self.slug).into(),
            title: self.title.into(),
            status: self.status.as_u16(),
            detail: Indented(&self.detail).to_string().into(),
            function: self.function.as_deref().map(Cow::from),
            instance: self
                .instance
                .map(|number| format!("urn:faasw:instance:{number}")),
            request_id: Some(request_id),
        };
        // Strings and numbers always serialise.
        let json = serde_json::to_string(&members).unwrap_or_default();
        let mut text = Json(json).to_string().into_bytes();
        text.push(b'\n');
        let length = text.len();
        let body = if head_only { B::default() } else { text.into() };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        response.extensions_mut().insert(ProblemSlug(self.slug));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, MEDIA_TYPE);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if head_only {
            headers.insert(header::CONTENT_LENGTH, length.into());
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_body_has_the_members_of_the_standard_and_ours() {
        let mut problem = Problem::new(
            StatusCode::GATEWAY_TIMEOUT,
            "timed-out",
            "The function took too long",
            "the function ran longer than its limit of 10 s",
        )
        .of_function("slow");
        problem.instance = Some(42);
        problem.retry_after = Some(1);

        let response = problem.response::<Vec<u8>>(RequestId::from_bits(7), false);
        assert_eq!(response.status(), 504);
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
        assert_eq!(response.headers()["retry-after"], "1");
        let slug = response.extensions().get();
        assert_eq!(slug, Some(&ProblemSlug("timed-out")));
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(
            body,
            serde_json::json!({
                "type": "urn:faasw:problem:timed-out",
                "title": "The function took too long",
                "status": 504,
                "detail": "the function ran longer than its limit of 10 s",
                "function": "slow",
                "instance": "urn:faasw:instance:42",
                "request_id": "00000000000000000000000000000007",
            })
        );
    }

    #[test]
    fn unknown_problem_members_are_ignored() {
        let problem = Problem::new(StatusCode::NOT_FOUND, "x", "X", "none");
        let response = problem.response::<Vec<u8>>(RequestId::from_bits(7), false);
        let body = String::from_utf8(response.body().clone()).unwrap();
        assert!(
            !body.contains("function") && !body.contains("instance"),
            "{body}"
        );
        assert!(!response.headers().contains_key("retry-after"));
    }
}
