//! The identifiers of a request in logs and responses: its id and its trace.
//!
//! Each request has an id of 128 random bits. They come from the thread's generator (ChaCha12,
//! seeded by the system), so that threads share nothing, and only one id in thousands needs a
//! system call. No part of the generator's state is in a seed or under a guest's control. The
//! client receives the id in `X-Request-Id`, and the function in the field of the same name.

use faasw_client::{RequestId, TraceContext};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::trace::{TRACEPARENT, TRACESTATE, Trace};

/// The field with a request's id, in both directions.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The identifiers of a request, from its arrival on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Correlation {
    /// The id of the request.
    pub(crate) request_id: RequestId,
    /// The trace that the request belongs to.
    pub(crate) trace: Trace,
}

impl Correlation {
    /// Returns the identifiers of a request with these fields. The id is `request_id`, or a new
    /// one.
    pub(crate) fn new(headers: &HeaderMap, request_id: Option<RequestId>) -> Self {
        Self {
            request_id: request_id.unwrap_or_else(|| RequestId::from_bits(rand::random())),
            trace: Trace::of(headers),
        }
    }

    /// Returns the ids of the trace, if there are any.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        self.trace.context()
    }

    /// Sets the id in a response, in place of one that the function has set.
    pub(crate) fn write_response_id(&self, response: &mut HeaderMap) {
        // Every character of an id is allowed in fields.
        if let Ok(value) = HeaderValue::from_str(self.request_id.as_str()) {
            response.insert(X_REQUEST_ID, value);
        }
    }
}

/// Returns the id that the sender gave a request, if there is exactly one and it is valid.
pub(crate) fn sent_id(headers: &HeaderMap) -> Option<RequestId> {
    let mut values = headers.get_all(X_REQUEST_ID).iter();
    let id = RequestId::read(values.next()?.as_bytes()).ok()?;
    values.next().is_none().then_some(id)
}

/// Removes fields from a request's trailers that are valid only in the head, where they were
/// checked.
pub(crate) fn strip_trailers(trailers: &mut HeaderMap) {
    for name in [X_REQUEST_ID, TRACEPARENT, TRACESTATE] {
        trailers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_are_unlike_each_other_on_all_threads() {
        let make = || {
            let ids = (0..10_000).map(|_| Correlation::new(&HeaderMap::new(), None).request_id);
            ids.collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(make)).collect();
        let ids = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap());
        let ids: Vec<RequestId> = ids.collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 40_000);
        // Every bit is set about half of the time, so no bits are a counter or a clock.
        let mut set = [0_u32; 128];
        for id in &ids {
            let bits = u128::from_str_radix(id.as_str(), 16).unwrap();
            for (at, count) in set.iter_mut().enumerate() {
                *count += (bits >> at & 1) as u32;
            }
        }
        // Ten standard deviations of 100 on either side.
        assert!(
            set.iter().all(|count| count.abs_diff(20_000) < 1000),
            "{set:?}"
        );
    }

    #[test]
    fn a_single_valid_request_id_is_accepted() {
        let sent = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(
                    X_REQUEST_ID,
                    HeaderValue::from_bytes(value.as_bytes()).unwrap(),
                );
            }
            sent_id(&headers).map(|id| id.to_string())
        };
        assert_eq!(sent(&["a-1"]).as_deref(), Some("a-1"));
        for values in [
            &[][..],
            &[""],
            &["a b"],
            &["a", "a"],
            &["a, b"],
            &["\u{e9}"],
        ] {
            assert_eq!(sent(values), None, "{values:?}");
        }
    }

    #[test]
    fn a_functions_own_request_id_header_is_replaced() {
        let correlation = Correlation::new(&HeaderMap::new(), Some("mine".parse().unwrap()));
        let mut response = HeaderMap::new();
        response.append(X_REQUEST_ID, HeaderValue::from_static("forged"));
        response.append(X_REQUEST_ID, HeaderValue::from_static("twice"));
        correlation.write_response_id(&mut response);
        let told: Vec<_> = response.get_all(X_REQUEST_ID).iter().collect();
        assert_eq!(told, ["mine"]);
    }
}
