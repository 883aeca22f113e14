//! By what all that is told of a request is found: its id, and its trace.
//!
//! Each request has an id of its own, of 128 random bits. They come of the thread's generator
//! (ChaCha12, seeded by the system), so that an id takes nothing that threads share, and a system
//! call once in thousands; nothing of it is in a seed or a guest's to choose. The client hears of
//! it by `X-Request-Id`, the function finds it in the field of the same name.

use faasw_client::{RequestId, TraceContext};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::trace::{TRACEPARENT, TRACESTATE, Trace};

/// The field that has a request's id, in both directions.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What a request is known by, from when it comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Correlation {
    /// The request's own.
    pub(crate) request_id: RequestId,
    /// Which trace it belongs to.
    pub(crate) trace: Trace,
}

impl Correlation {
    /// Of a request with these fields, which has this id, or a new one.
    pub(crate) fn new(headers: &HeaderMap, request_id: Option<RequestId>) -> Self {
        Self {
            request_id: request_id.unwrap_or_else(|| RequestId::from_bits(rand::random())),
            trace: Trace::of(headers),
        }
    }

    /// The trace's ids, where there are any.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        self.trace.context()
    }

    /// Tells a client the id, in place of whatever a function says that it is.
    pub(crate) fn tell(&self, response: &mut HeaderMap) {
        // Nothing that an id may have is forbidden to fields.
        if let Ok(value) = HeaderValue::from_str(self.request_id.as_str()) {
            response.insert(X_REQUEST_ID, value);
        }
    }
}

/// The id that whoever sends a request has given it, if that is one.
pub(crate) fn sent_id(headers: &HeaderMap) -> Option<RequestId> {
    let mut values = headers.get_all(X_REQUEST_ID).iter();
    let id = RequestId::read(values.next()?.as_bytes()).ok()?;
    values.next().is_none().then_some(id)
}

/// Takes out of a request's trailers what has its place in the head, where it was looked at.
pub(crate) fn leave_out(trailers: &mut HeaderMap) {
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
        // Every bit of them is as often set as not: none is a count or a clock.
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
    fn one_id_that_is_sent_is_an_id() {
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
    fn what_a_function_says_that_its_id_is_does_not_count() {
        let known = Correlation::new(&HeaderMap::new(), Some("mine".parse().unwrap()));
        let mut response = HeaderMap::new();
        response.append(X_REQUEST_ID, HeaderValue::from_static("forged"));
        response.append(X_REQUEST_ID, HeaderValue::from_static("twice"));
        known.tell(&mut response);
        let told: Vec<_> = response.get_all(X_REQUEST_ID).iter().collect();
        assert_eq!(told, ["mine"]);
    }
}
