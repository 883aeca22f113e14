//! A proxy that caches: `GET /PATH` asks an origin for it, and the store for as long as the
//! origin's answer may be used again.

mod answering;
mod cache;
mod wait;

use std::time::Duration;

use futures::TryStreamExt as _;
use spin_sdk::http::{
    ErrorCode, Headers, IncomingRequest, IncomingResponse, Method, Request, ResponseOutparam,
    SendError,
};
use spin_sdk::{http_component, variables};

use answering::Answering;
use cache::{Control, Entry, LARGEST_BODY};

/// For the head of the origin's answer, and for each next piece of its body.
const PATIENCE: Duration = Duration::from_secs(10);

/// What of the origin's answer goes on to clients, and into the store. Nothing of theirs goes the
/// other way but a trace, so one answer is all clients'.
const PASSED: [&str; 7] = [
    "content-type",
    "content-language",
    "content-encoding",
    "cache-control",
    "etag",
    "last-modified",
    "location",
];

#[http_component]
async fn handle(request: IncomingRequest, out: ResponseOutparam) {
    if !matches!(request.method(), Method::Get) {
        return tell(out, 405, "only GET is passed on\n");
    }
    let Ok(origin) = variables::get("origin") else {
        eprintln!("misconfigured: origin is not set");
        return tell(out, 500, "the proxy has no origin\n");
    };
    let path = request.path_with_query().unwrap_or_else(|| "/".into());
    let url = format!("{}{path}", origin.trim_end_matches('/'));
    let headers = request.headers();
    let asked = Control::of(&headers.get("cache-control"));

    if asked.allows_stored()
        && let Some(entry) = cache::fresh(&url)
    {
        return answer(out, entry);
    }
    match wait::within(PATIENCE, send(&url, &headers)).await {
        Some(Ok(response)) => pass_on(out, &url, &response, asked.allows_storing()).await,
        Some(Err(SendError::Http(error))) if is_timeout(&error) => {
            eprintln!("{url}: {error}");
            tell(out, 504, "the origin takes too long\n");
        }
        Some(Err(error)) => {
            eprintln!("{url}: {error}");
            tell(out, 502, "the origin does not answer\n");
        }
        None => {
            eprintln!("{url}: no answer within {PATIENCE:?}");
            tell(out, 504, "the origin takes too long\n");
        }
    }
}

async fn send(url: &str, headers: &Headers) -> Result<IncomingResponse, SendError> {
    let mut request = Request::get(url);
    for name in ["traceparent", "tracestate"] {
        if let Some(value) = headers.get(name).into_iter().next()
            && let Ok(value) = String::from_utf8(value)
        {
            request.header(name, value);
        }
    }
    spin_sdk::http::send(request.build()).await
}

fn is_timeout(error: &ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::DnsTimeout
            | ErrorCode::ConnectionTimeout
            | ErrorCode::ConnectionReadTimeout
            | ErrorCode::ConnectionWriteTimeout
            | ErrorCode::HttpResponseTimeout
    )
}

/// Passes on what the origin answers as it comes, and keeps it if it may and came whole.
async fn pass_on(out: ResponseOutparam, url: &str, response: &IncomingResponse, may_store: bool) {
    let theirs = response.headers();
    let mut entry = (may_store && response.status() == 200)
        .then(|| Entry::of_headers(url, &theirs))
        .flatten();

    let mut headers = passed(&theirs);
    headers.push(("x-cache".into(), b"miss".to_vec()));
    // Whoever is promised a length sees that less came.
    let length = theirs.get("content-length").into_iter().next();
    let last = length.as_deref().map(cache::number);
    headers.extend(length.map(|length| ("content-length".into(), length)));
    let mut answering = Answering::begin(out, response.status(), &headers);
    let mut pieces = response.take_body_stream();
    loop {
        let piece = match wait::within(PATIENCE, pieces.try_next()).await {
            Some(Ok(Some(piece))) => piece,
            Some(Ok(None)) => break,
            broken => {
                match broken {
                    Some(Err(error)) => eprintln!("{url}: broke off: {}", error.to_debug_string()),
                    _ => eprintln!("{url}: nothing more within {PATIENCE:?}"),
                }
                // Not finished, so the client's is cut off.
                return;
            }
        };
        if let Some(kept) = &mut entry {
            if kept.body.len() + piece.len() <= LARGEST_BODY {
                kept.body.extend_from_slice(&piece);
            } else {
                entry = None;
            }
        }
        // Who was promised a length has all of it with its last byte, and may go away then.
        let is_whole = |kept: &mut Entry| Some(kept.body.len() as u64) == last;
        if let Some(entry) = entry.take_if(is_whole) {
            cache::keep(&entry);
        }
        if answering.write(&piece).is_err() {
            // The client has gone away.
            return;
        }
    }
    // Before the end, too: who has all of the answer finds it in the store.
    if let Some(entry) = entry {
        cache::keep(&entry);
    }
    answering.finish();
}

fn answer(out: ResponseOutparam, entry: Entry) {
    let mut headers = entry.headers.clone();
    headers.push(("age".into(), entry.age().to_string().into()));
    headers.push(("x-cache".into(), b"hit".to_vec()));
    headers.push(("content-length".into(), entry.body.len().to_string().into()));
    let answering = Answering::begin(out, 200, &headers);
    answering.whole(&entry.body);
}

fn passed(headers: &Headers) -> Vec<(String, Vec<u8>)> {
    let of = |name: &'static str| {
        headers
            .get(name)
            .into_iter()
            .map(move |value| (name.to_owned(), value))
    };
    PASSED.into_iter().flat_map(of).collect()
}

fn tell(out: ResponseOutparam, status: u16, text: &str) {
    let mut headers = vec![
        ("content-type".into(), b"text/plain; charset=utf-8".to_vec()),
        ("cache-control".into(), b"no-store".to_vec()),
    ];
    if status == 405 {
        headers.push(("allow".into(), b"GET".to_vec()));
    }
    Answering::begin(out, status, &headers).whole(text.as_bytes());
}
