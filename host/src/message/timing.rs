//! `Server-Timing`: where a request's time went, for clients that request it. It is a header field,
//! or a trailer of a response that is streamed.

use std::time::Duration;

use faasw_pool::Timing;
use http::{HeaderMap, HeaderName, HeaderValue};

/// A request that has this field with the value `1` is answered with `Server-Timing`.
pub(super) const ASKING: HeaderName = HeaderName::from_static("x-faasw-timing");

pub(super) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Whether a request asks for `Server-Timing`.
pub(super) fn wants_timing(request: &HeaderMap) -> bool {
    request.get(ASKING).is_some_and(|value| value == "1")
}

/// Adds the stages of a request to the fields of its response, besides those that the function has
/// set.
pub(crate) fn add_server_timing(response: &mut HeaderMap, timing: &Timing) {
    let text = format!(
        "queue;dur={}, fork;dur={}, init;dur={}, exec;dur={}, run;dur={}, served;desc=\"{}\"",
        milliseconds(timing.queue),
        milliseconds(timing.fork),
        milliseconds(timing.init),
        milliseconds(timing.exec),
        milliseconds(timing.run),
        timing.served.name(),
    );
    if let Ok(value) = HeaderValue::from_str(&text) {
        response.append(SERVER_TIMING, value);
    }
}

/// Formats milliseconds with three decimals, by integers: a float would round twice.
fn milliseconds(duration: Duration) -> String {
    let microseconds = duration.as_micros();
    format!("{}.{:03}", microseconds / 1000, microseconds % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_milliseconds_with_three_decimals() {
        let timing = Timing {
            queue: Duration::from_micros(12),
            fork: Duration::from_micros(1_000),
            init: Duration::ZERO,
            exec: Duration::from_millis(12_345),
            run: Duration::from_millis(12_346),
            ..Timing::default()
        };
        let mut headers = HeaderMap::new();
        add_server_timing(&mut headers, &timing);
        assert_eq!(
            headers["server-timing"],
            "queue;dur=0.012, fork;dur=1.000, init;dur=0.000, exec;dur=12345.000, \
             run;dur=12346.000, served;desc=\"made\""
        );
    }

    #[test]
    fn server_timing_requires_the_value_1() {
        let mut headers = HeaderMap::new();
        assert!(!wants_timing(&headers));
        headers.insert(ASKING, HeaderValue::from_static("0"));
        assert!(!wants_timing(&headers));
        headers.insert(ASKING, HeaderValue::from_static("1"));
        assert!(wants_timing(&headers));
    }
}
