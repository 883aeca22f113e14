//! The access log: a record of each finished request, for an observer that receives requests.
//!
//! A record starts with the request and is attached to the response's body. When the body is
//! dropped, for whatever reason, the record is reported. Without an observer there are no records.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use faasw_client::{ProblemSlug, RequestId, TraceContext, spelling};
use http::{HeaderMap, Request, Response, Version, header};
use serde::{Serialize, Serializer};

use super::{
    correlation::{Correlation, sent_id},
    request::RemoteAddress,
};

/// Maximum bytes of a target in a record, and of a host and a user agent: the client chooses all of
/// them.
const TARGET_BYTES: usize = 2048;
const WORDS_BYTES: usize = 256;

/// A finished request.
///
/// The JSON form is an object with these members, without those that are unknown. Text from clients
/// is included unchanged except for its length. A program that writes it must escape it.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct AccessRecord {
    /// When the request's head had arrived.
    #[serde(serialize_with = "spelling::time::serialize")]
    pub time: SystemTime,
    /// The id of the request.
    pub request_id: RequestId,
    /// The trace that the request belongs to.
    #[serde(flatten)]
    pub trace: Option<TraceContext>,
    /// The id that the client chose for the request, if it differs from the request's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_request_id: Option<RequestId>,
    /// The client's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_address: Option<IpAddr>,
    /// The method. Methods longer than 256 bytes are cut.
    pub method: String,
    /// The target's authority, or the `Host` field; at most 256 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Path and query as the client sent them, including the function's name. At most 2048 bytes.
    pub target: String,
    /// The version of HTTP.
    pub protocol: &'static str,
    /// The field `User-Agent`; at most 256 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
    /// The function that the request was for, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The number of the instance that served the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<u64>,
    /// The response's status; `None` if the client disconnected before there was a response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The reason why the node answered instead of the function: the last part of the problem's
    /// type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<&'static str>,
    /// Bytes of the response's body that were passed to the connection.
    pub body_bytes: u64,
    /// Whether the response was passed to the connection completely. Otherwise it was cut off, or
    /// the client disconnected.
    pub is_whole: bool,
    /// The time from the request's head to the end of the response.
    #[serde(rename = "milliseconds", serialize_with = "write_milliseconds")]
    pub duration: Duration,
}

/// The callback for finished requests.
pub(crate) type RequestCallback = dyn Fn(&AccessRecord) + Send + Sync;

/// A request that is followed to its end. The record is reported when this is dropped.
pub(crate) struct RequestRecorder {
    record: AccessRecord,
    /// The number of the instance that serves the request; 0 until there is one.
    instance: Arc<AtomicU64>,
    begun: Instant,
    tell: Arc<RequestCallback>,
}

impl RequestRecorder {
    /// Follows a request that has just arrived.
    pub(crate) fn begin<B>(
        tell: &Arc<RequestCallback>,
        request: &Request<B>,
        correlation: &Correlation,
    ) -> Box<Self> {
        let headers = request.headers();
        let uri = request.uri();
        let authority = uri
            .authority()
            .map(|authority| authority.as_str().as_bytes());
        let field = |name| headers.get(name).map(http::HeaderValue::as_bytes);
        let target = uri.path_and_query().map_or("", |target| target.as_str());
        let remote_address = request.extensions().get::<RemoteAddress>();
        Box::new(Self {
            record: AccessRecord {
                time: SystemTime::now(),
                request_id: correlation.request_id,
                trace: correlation.trace(),
                client_request_id: client_id(headers, correlation.request_id),
                remote_address: remote_address.map(|RemoteAddress(address)| *address),
                method: text(request.method().as_str().as_bytes(), WORDS_BYTES),
                host: authority
                    .or_else(|| field(header::HOST))
                    .map(|host| text(without_user(host), WORDS_BYTES)),
                target: text(target.as_bytes(), TARGET_BYTES),
                protocol: protocol(request.version()),
                user_agent: field(header::USER_AGENT).map(|agent| text(agent, WORDS_BYTES)),
                function: None,
                instance: None,
                status: None,
                problem: None,
                body_bytes: 0,
                is_whole: false,
                duration: Duration::ZERO,
            },
            instance: Arc::default(),
            begun: Instant::now(),
            tell: tell.clone(),
        })
    }

    /// Sets the function that the request is for.
    pub(crate) fn set_function(&mut self, function: &str) {
        self.record.function = Some(function.to_owned());
    }

    /// Returns where the number of the instance that serves the request is stored, even if that
    /// instance is then given up.
    pub(crate) fn instance(&self) -> Arc<AtomicU64> {
        self.instance.clone()
    }

    /// Counts bytes of the body that were passed on. `is_end` says whether they were the last.
    pub(super) fn count_body_bytes(&mut self, bytes: usize, is_end: bool) {
        self.record.body_bytes += bytes as u64;
        self.record.is_whole = is_end;
    }

    /// Records the head of the response.
    pub(super) fn set_response<B>(&mut self, response: &Response<B>) {
        self.record.status = Some(response.status().as_u16());
        let slug = response.extensions().get();
        self.record.problem = slug.map(|ProblemSlug(slug)| *slug);
    }
}

impl Drop for RequestRecorder {
    fn drop(&mut self) {
        let instance = self.instance.load(Ordering::Relaxed);
        self.record.instance = (instance != 0).then_some(instance);
        self.record.duration = self.begun.elapsed();
        (self.tell)(&self.record);
    }
}

impl fmt::Debug for RequestRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestRecorder")
            .field("record", &self.record)
            .finish_non_exhaustive()
    }
}

/// Returns the id that the client chose for a request, if it differs from the request's id.
fn client_id(headers: &HeaderMap, request_id: RequestId) -> Option<RequestId> {
    sent_id(headers).filter(|id| *id != request_id)
}

/// Returns the start of a client's text.
fn text(bytes: &[u8], most: usize) -> String {
    let beginning = bytes.get(..most).unwrap_or(bytes);
    let mut text = String::from_utf8_lossy(beginning).into_owned();
    // An invalid UTF-8 byte becomes a replacement character of three bytes.
    text.truncate(text.floor_char_boundary(most));
    text
}

/// Returns a host without user name and password, which must not be logged.
fn without_user(host: &[u8]) -> &[u8] {
    host.rsplit(|byte| *byte == b'@').next().unwrap_or(host)
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_11 => "HTTP/1.1",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/3.0",
    }
}

/// Serialises milliseconds with three decimals.
fn write_milliseconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    let microseconds = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    serializer.serialize_f64(microseconds as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::{super::Body, *};
    use std::sync::Mutex;

    use http_body_util::BodyExt as _;

    /// Returns the reported records, and the callback that reports.
    fn told() -> (Arc<Mutex<Vec<AccessRecord>>>, Arc<RequestCallback>) {
        let told = Arc::<Mutex<Vec<AccessRecord>>>::default();
        let tell = {
            let told = told.clone();
            Arc::new(move |record: &AccessRecord| told.lock().unwrap().push(record.clone()))
        };
        (told, tell)
    }

    fn follow(
        tell: &Arc<RequestCallback>,
        request: http::request::Builder,
    ) -> Box<RequestRecorder> {
        let request = request.body(()).unwrap();
        let id = request.extensions().get().copied();
        let correlation = Correlation::new(request.headers(), id);
        RequestRecorder::begin(tell, &request, &correlation)
    }

    fn mine() -> RequestId {
        "mine".parse().unwrap()
    }

    #[tokio::test]
    async fn a_request_is_reported_once_after_its_response() {
        let (told, tell) = told();
        let request = Request::post("/f/x?y=z")
            .header("host", "a.test")
            .header("user-agent", "probe/1")
            .header("x-request-id", "theirs")
            .header(
                "traceparent",
                "00-12345678901234567890123456789012-1234567890123456-01",
            )
            .extension(RemoteAddress("192.0.2.1".parse().unwrap()))
            .extension(mine());
        let mut follow = follow(&tell, request);
        follow.set_function("f");
        follow.instance().store(7, Ordering::Relaxed);
        let response = Body::record(Some(follow), Response::new(Body::from("hello")));
        assert!(told.lock().unwrap().is_empty());
        response.into_body().collect().await.unwrap();
        let records = told.lock().unwrap();
        let [record] = records.as_slice() else {
            panic!("{records:?}");
        };
        let mut json = serde_json::to_value(record).unwrap();
        let members = json.as_object_mut().unwrap();
        assert!(members.remove("time").unwrap().is_string());
        assert!(members.remove("milliseconds").unwrap().is_f64());
        let expected = serde_json::json!({
            "request_id": "mine",
            "trace_id": "12345678901234567890123456789012",
            "parent_id": "1234567890123456",
            "client_request_id": "theirs",
            "remote_address": "192.0.2.1",
            "method": "POST",
            "host": "a.test",
            "target": "/f/x?y=z",
            "protocol": "HTTP/1.1",
            "user_agent": "probe/1",
            "function": "f",
            "instance": 7,
            "status": 200,
            "body_bytes": 5,
            "is_whole": true,
        });
        assert_eq!(json, expected);
    }

    #[tokio::test]
    async fn a_response_that_breaks_off_is_reported_as_incomplete() {
        let (told, tell) = told();
        // The client disconnects before there is a response, and before it has read any of the
        // response.
        drop(follow(&tell, Request::get("/")));
        let following = follow(&tell, Request::get("/"));
        drop(Body::record(
            Some(following),
            Response::new(Body::from("hello")),
        ));
        // This response has no body to read.
        let following = follow(&tell, Request::get("/"));
        let problem = faasw_client::Problem::new(http::StatusCode::NOT_FOUND, "none", "", "");
        drop(Body::record(
            Some(following),
            problem.response(mine(), true),
        ));
        let told = told.lock().unwrap();
        let short = |record: &AccessRecord| (record.status, record.problem, record.is_whole);
        let told: Vec<_> = told.iter().map(short).collect();
        let expected = [
            (None, None, false),
            (Some(200), None, false),
            (Some(404), Some("none"), true),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn client_text_in_a_record_is_truncated() {
        let (told, tell) = told();
        let long = "x".repeat(10_000);
        let request = Request::get(format!("/{long}"))
            .header("host", &long)
            .header("user-agent", [0xff; 10_000].as_slice())
            .header("x-request-id", &long);
        drop(follow(&tell, request));
        let told = told.lock().unwrap();
        let record = &told[0];
        assert_eq!(record.target.len(), TARGET_BYTES);
        assert_eq!(record.host.as_ref().map(String::len), Some(WORDS_BYTES));
        let agent = record.user_agent.as_ref().map(String::len);
        assert!(agent.is_some_and(|length| (1..=WORDS_BYTES).contains(&length)));
        assert_eq!(record.client_request_id, None);
    }

    #[test]
    fn user_and_password_of_a_target_are_never_recorded() {
        let (told, tell) = told();
        drop(follow(&tell, Request::get("http://alice:secret@a.test/")));
        let request = Request::get("/").header("host", "alice:secret@b.test:80");
        drop(follow(&tell, request));
        let told = told.lock().unwrap();
        let hosts: Vec<_> = told.iter().map(|record| record.host.as_deref()).collect();
        assert_eq!(hosts, [Some("a.test"), Some("b.test:80")]);
    }
}
