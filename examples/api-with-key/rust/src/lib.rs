//! Stands before an API that wants a key: `GET /ID` answers with the API's item of this id, and
//! whoever asks needs no key.

use std::time::Duration;

use http::header;
use wstd::future::FutureExt as _;
use wstd::http::{
    Body, BodyExt as _, Client, Error, ErrorCode, HeaderValue, Method, Request, Response,
    StatusCode, body::util::Limited,
};

use wasi::config::store;

wit_bindgen::generate!({
    path: "../wit/deps/config.wit",
    inline: "
        package example:api-with-key;

        world imports {
            import wasi:config/store@0.2.0-draft-2024-09-27;
        }
    ",
    generate_all,
});

/// For the whole of what the API is asked, where the configuration's `timeout_ms` says nothing.
const TIMEOUT: Duration = Duration::from_secs(5);

/// So many bytes an item has at most.
const LARGEST_ITEM: usize = 1 << 20;

/// So many characters an id has at most.
const LONGEST_ID: usize = 64;

/// What the client gets in place of an item. Why is for the function's log, and never has the key.
struct Refusal {
    status: StatusCode,
    text: &'static str,
    retry_after: Option<HeaderValue>,
}

impl Refusal {
    fn new(status: StatusCode, text: &'static str) -> Self {
        Self {
            status,
            text,
            retry_after: None,
        }
    }

    fn bad_gateway() -> Self {
        Self::new(
            StatusCode::BAD_GATEWAY,
            "the API gives no answer that is one",
        )
    }

    fn gateway_timeout() -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "the API takes too long")
    }

    /// Not configured as the function needs it, which is nothing that a client can mend.
    fn misconfigured(why: &str) -> Self {
        eprintln!("misconfigured: {why}");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the function is misconfigured",
        )
    }
}

#[wstd::http_server]
async fn main(request: Request<Body>) -> Result<Response<Body>, Error> {
    let response = Response::builder().header(header::CACHE_CONTROL, "no-store");
    Ok(match item(&request).await {
        Ok(item) => response
            .header(header::CONTENT_TYPE, "application/json")
            .body(item.into())?,
        Err(refusal) => {
            let mut response = response
                .status(refusal.status)
                .header(header::CONTENT_TYPE, "application/json")
                .body(format!("{{\"error\":\"{}\"}}\n", refusal.text).into())?;
            let headers = response.headers_mut();
            if refusal.status == StatusCode::METHOD_NOT_ALLOWED {
                headers.insert(header::ALLOW, HeaderValue::from_static("GET"));
            }
            if let Some(time) = refusal.retry_after {
                headers.insert(header::RETRY_AFTER, time);
            }
            response
        }
    })
}

async fn item(request: &Request<Body>) -> Result<Vec<u8>, Refusal> {
    if request.method() != Method::GET {
        return Err(Refusal::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET is answered",
        ));
    }
    // The key opens all of the API, so a client chooses an id and no path.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let id = request.uri().path().trim_start_matches('/');
    if !(1..=LONGEST_ID).contains(&id.len()) || !id.bytes().all(is_plain) {
        return Err(Refusal::new(
            StatusCode::NOT_FOUND,
            "an id has 1 to 64 letters, digits, '-' and '_'",
        ));
    }

    let timeout = match setting("timeout_ms")?.map(|text| text.parse()) {
        Some(Ok(milliseconds)) => Duration::from_millis(milliseconds),
        Some(Err(_)) => return Err(Refusal::misconfigured("timeout_ms is no number")),
        None => TIMEOUT,
    };
    let asked = ask(question(id, request)?)
        .timeout(wstd::time::Duration::from(timeout))
        .await;
    asked.unwrap_or_else(|_| {
        eprintln!("the API has not answered within {timeout:?}");
        Err(Refusal::gateway_timeout())
    })
}

fn question(id: &str, request: &Request<Body>) -> Result<Request<Body>, Refusal> {
    let missing = |key| move || Refusal::misconfigured(&format!("{key} is not set"));
    let base = setting("api_url")?.ok_or_else(missing("api_url"))?;
    let key = setting("api_key")?.ok_or_else(missing("api_key"))?;
    let mut authorization = HeaderValue::try_from(format!("Bearer {key}"))
        .map_err(|_| Refusal::misconfigured("api_key is nothing that a header can have"))?;
    // Whoever prints these headers prints a word in its place.
    authorization.set_sensitive(true);

    let mut question = Request::get(format!("{}/{id}", base.trim_end_matches('/')))
        .header(header::AUTHORIZATION, authorization)
        .header(header::ACCEPT, "application/json");
    // The API's part of a trace belongs to that of the request.
    for name in ["traceparent", "tracestate"] {
        if let Some(value) = request.headers().get(name) {
            question = question.header(name, value);
        }
    }
    question
        .body(Body::empty())
        .map_err(|_| Refusal::misconfigured("api_url is no URL"))
}

async fn ask(question: Request<Body>) -> Result<Vec<u8>, Refusal> {
    let answer = Client::new().send(question).await.map_err(failed)?;
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => {
            return Err(Refusal::new(
                StatusCode::NOT_FOUND,
                "the API has no such item",
            ));
        }
        status @ (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) => {
            eprintln!("the API answers {status}");
            let mut refusal = Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the API is asked too often",
            );
            refusal.retry_after = answer.headers().get(header::RETRY_AFTER).cloned();
            return Err(refusal);
        }
        // 401 and 403 too: that the key is refused is not the client's fault.
        status => {
            eprintln!("the API answers {status}");
            return Err(Refusal::bad_gateway());
        }
    }
    if answer
        .body()
        .content_length()
        .is_some_and(|length| length > LARGEST_ITEM as u64)
    {
        eprintln!("the API's answer is too large");
        return Err(Refusal::bad_gateway());
    }
    read(answer.into_body()).await
}

/// All of the body, before anything is answered: one that breaks off is a 502, and no half item.
async fn read(body: Body) -> Result<Vec<u8>, Refusal> {
    let body = Limited::new(body.into_boxed_body(), LARGEST_ITEM);
    match body.collect().await {
        Ok(whole) => Ok(whole.to_bytes().into()),
        Err(error) => {
            eprintln!("the API's answer broke off: {error:#}");
            Err(Refusal::bad_gateway())
        }
    }
}

fn failed(error: Error) -> Refusal {
    // Says what happened to the request, not what was in it.
    eprintln!("the API was not reached: {error:#}");
    match error.downcast_ref::<ErrorCode>() {
        Some(
            ErrorCode::DnsTimeout
            | ErrorCode::ConnectionTimeout
            | ErrorCode::ConnectionReadTimeout
            | ErrorCode::ConnectionWriteTimeout
            | ErrorCode::HttpResponseTimeout,
        ) => Refusal::gateway_timeout(),
        _ => Refusal::bad_gateway(),
    }
}

/// A value of the configuration, or a secret: it is for the command line to say which.
fn setting(key: &str) -> Result<Option<String>, Refusal> {
    store::get(key)
        .map_err(|error| Refusal::misconfigured(&format!("{key} cannot be read: {error}")))
}
