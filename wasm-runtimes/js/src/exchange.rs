//! The request and its response, on the interfaces of `wasi:http`.

use std::cell::{Cell, RefCell};

use rquickjs::{Ctx, Exception, Promise, Result};
use url::Url;

use crate::{
    bindings::wasi::{
        http::types::{
            ErrorCode, Fields, HeaderError, IncomingBody, IncomingRequest, Method, OutgoingBody,
            OutgoingResponse, ResponseOutparam, Scheme,
        },
        io::streams::{InputStream, OutputStream, StreamError},
    },
    content_coding, event_loop, files, stores, text,
};

/// How many bytes of the request's body are read at once.
const PIECE: u64 = 64 << 10;

/// A request and its response. Each stream is declared before the body to which it belongs, because
/// fields are dropped in this order.
pub(crate) struct Exchange {
    input: Option<InputStream>,
    body: Option<IncomingBody>,
    request: IncomingRequest,
    /// Bytes of the request's body that were read, but that the script has not taken yet.
    received: Vec<u8>,
    has_all: bool,
    output: Option<OutputStream>,
    outgoing: Option<OutgoingBody>,
    out: Option<ResponseOutparam>,
}

/// The client's body ended too early.
struct CutShort;

impl CutShort {
    fn throw(self, ctx: &Ctx<'_>) -> rquickjs::Error {
        Exception::throw_type(ctx, "the client's body ended too early")
    }
}

thread_local! {
    static EXCHANGE: RefCell<Option<Exchange>> = const { RefCell::new(None) };
    static HAS_ENDED: Cell<bool> = const { Cell::new(false) };
}

/// The method of a request.
pub(crate) fn method(request: &IncomingRequest) -> String {
    let method = match request.method() {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Delete => "DELETE",
        Method::Connect => "CONNECT",
        Method::Options => "OPTIONS",
        Method::Trace => "TRACE",
        Method::Patch => "PATCH",
        Method::Other(other) => return other,
    };
    method.to_owned()
}

/// Returns the URL of the request under way. This costs four calls and a parser, and many handlers
/// never need it.
pub(crate) fn request_url(ctx: &Ctx<'_>) -> Result<String> {
    with(|exchange| url(&exchange.request)).ok_or_else(|| no_request(ctx))
}

fn url(request: &IncomingRequest) -> String {
    let scheme = match request.scheme() {
        Some(Scheme::Https) => "https",
        _ => "http",
    };
    let authority = request.authority();
    let authority = authority.as_deref().unwrap_or("localhost");
    let target = request.path_with_query();
    let target = target.as_deref().unwrap_or("/");
    let url = format!("{scheme}://{authority}{target}");
    // The URL in the form of the URL Standard.
    Url::parse(&url).map_or(url, String::from)
}

impl Exchange {
    pub(crate) fn new(request: IncomingRequest, out: ResponseOutparam) -> Self {
        Self {
            input: None,
            body: None,
            request,
            received: Vec::new(),
            has_all: false,
            output: None,
            outgoing: None,
            out: Some(out),
        }
    }

    /// Returns the stream of the request's body. It is opened on first use, because most handlers
    /// never read the body.
    fn input(&mut self) -> Option<&InputStream> {
        if self.body.is_none() {
            let body = self.request.consume().ok()?;
            self.input = body.stream().ok();
            self.body = Some(body);
        }
        self.input.as_ref()
    }

    /// Reads what is available: some bytes, an empty piece if nothing has arrived yet, or `None` at
    /// the end.
    fn read(&mut self) -> std::result::Result<Option<Vec<u8>>, CutShort> {
        if self.has_all {
            return Ok(None);
        }
        let read = self.input().map(|input| input.read(PIECE));
        match read.unwrap_or(Err(StreamError::Closed)) {
            Ok(piece) => Ok(Some(piece)),
            Err(StreamError::Closed) => {
                self.has_all = true;
                Ok(None)
            }
            Err(StreamError::LastOperationFailed(_)) => Err(CutShort),
        }
    }
}

fn with<T>(run: impl FnOnce(&mut Exchange) -> T) -> Option<T> {
    EXCHANGE.with_borrow_mut(|exchange| exchange.as_mut().map(run))
}

fn no_request(ctx: &Ctx<'_>) -> rquickjs::Error {
    Exception::throw_type(ctx, "there is no request")
}

pub(crate) fn begin(exchange: Exchange) {
    HAS_ENDED.set(false);
    EXCHANGE.set(Some(exchange));
}

/// Returns whether the script has done all that it will do.
pub(crate) fn has_ended() -> bool {
    HAS_ENDED.get()
}

pub(crate) fn set_ended(has_ended: bool) {
    HAS_ENDED.set(has_ended);
}

/// Ends the request and closes what is still open.
pub(crate) fn end() {
    stores::close();
    files::close();
    EXCHANGE.take();
}

/// Returns whether a request is being answered.
pub(crate) fn is_under_way() -> bool {
    EXCHANGE.with_borrow(Option::is_some)
}

/// Returns whether neither a response nor a failure has been set.
pub(crate) fn is_unanswered() -> bool {
    with(|exchange| exchange.out.is_some()).unwrap_or(false)
}

/// Returns header fields as scripts see them, in pairs: a character for each byte of a value.
pub(crate) fn pairs(entries: Vec<(String, Vec<u8>)>) -> Vec<Vec<String>> {
    let latin1 = |bytes: Vec<u8>| bytes.into_iter().map(char::from).collect::<String>();
    entries
        .into_iter()
        .map(|(name, value)| vec![name.to_ascii_lowercase(), latin1(value)])
        .collect()
}

/// Returns the request's header fields, in pairs.
pub(crate) fn headers() -> Vec<Vec<String>> {
    let entries = with(|exchange| exchange.request.headers().entries());
    let mut headers = pairs(entries.unwrap_or_default());
    join_cookies(&mut headers);
    // `wasi:http` has the authority apart; scripts expect it in the field `host`, where clients put
    // it.
    if !headers.iter().any(|pair| pair[0] == "host") {
        let authority = with(|exchange| exchange.request.authority()).flatten();
        headers.extend(authority.map(|authority| vec!["host".to_owned(), authority]));
    }
    headers
}

/// Returns whether the client accepts a response with these content codings.
pub(crate) fn accepts(codings: &str) -> bool {
    let name = "accept-encoding".to_owned();
    let fields = with(|exchange| exchange.request.headers().get(&name)).unwrap_or_default();
    let fields: Vec<_> = fields
        .iter()
        .map(|value| String::from_utf8_lossy(value))
        .collect();
    content_coding::accepts(&fields.join(","), codings)
}

/// Joins several `cookie` fields into the first one. HTTP/2 clients send them so, and their
/// separator is a semicolon, unlike that of all other fields (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut Vec<Vec<String>>) {
    let is_cookie = |pair: &Vec<String>| pair[0] == "cookie";
    let cookies: Vec<&str> = headers
        .iter()
        .filter(|pair| is_cookie(pair))
        .map(|pair| pair[1].as_str())
        .collect();
    if cookies.len() < 2 {
        return;
    }
    let joined = cookies.join("; ");
    let mut joined = Some(joined);
    headers.retain_mut(|pair| {
        if !is_cookie(pair) {
            return true;
        }
        let first = joined.take();
        let is_first = first.is_some();
        if let Some(joined) = first {
            pair[1] = joined;
        }
        is_first
    });
}

/// Takes in what the client has sent in the meantime. Returns whether the body has ended.
pub(crate) fn receive(ctx: &Ctx<'_>) -> Result<bool> {
    let received = with(|exchange| {
        loop {
            match exchange.read()? {
                None => return Ok(true),
                Some(piece) if piece.is_empty() => return Ok(false),
                Some(piece) if exchange.received.is_empty() => exchange.received = piece,
                Some(piece) => exchange.received.extend_from_slice(&piece),
            }
        }
    });
    // The error is thrown outside of `with`, because scripts may influence how an error is built.
    let received = received.ok_or_else(|| no_request(ctx))?;
    received.map_err(|cut: CutShort| cut.throw(ctx))
}

/// Takes the received bytes.
pub(crate) fn received() -> Vec<u8> {
    with(|exchange| std::mem::take(&mut exchange.received)).unwrap_or_default()
}

pub(crate) fn received_text(ctx: &Ctx<'_>) -> Result<String> {
    text::of_body(ctx, received())
}

/// Returns the next piece for a stream: `None` if nothing has arrived yet, `Some(None)` at the end
/// of the body.
pub(crate) fn receive_piece(ctx: &Ctx<'_>) -> Result<Option<Option<Vec<u8>>>> {
    let piece = with(Exchange::read).ok_or_else(|| no_request(ctx))?;
    Ok(match piece.map_err(|cut| cut.throw(ctx))? {
        None => Some(None),
        Some(piece) if piece.is_empty() => None,
        Some(piece) => Some(Some(piece)),
    })
}

/// Returns a promise that is fulfilled when the client has sent more.
pub(crate) fn receivable<'js>(ctx: &Ctx<'js>) -> Result<Promise<'js>> {
    let pollable = with(|exchange| exchange.input().map(InputStream::subscribe)).flatten();
    event_loop::wait_for(ctx, pollable.ok_or_else(|| no_request(ctx))?)
}

/// Begins the response. Its body is sent later in pieces, is complete already, or is absent.
/// Returns whether the response can still be delivered.
pub(crate) fn respond(
    ctx: &Ctx<'_>,
    status: u16,
    pairs: &[(String, String)],
    body: Body<'_>,
) -> Result<bool> {
    let fields = fields_of(ctx, pairs, "a response")?;
    let begun = with(|exchange| {
        let out = exchange.out.take()?;
        let response = OutgoingResponse::new(fields);
        if status != 200 {
            // The status is one that the engine or another server has checked.
            let _ = response.set_status_code(status);
        }
        let outgoing = response.body().ok();
        ResponseOutparam::set(out, Ok(response));
        let outgoing = outgoing?;
        let output = outgoing.write().ok();
        if let (Body::Whole(bytes), Some(output)) = (&body, &output) {
            send_all(output, bytes);
        }
        if !matches!(body, Body::Sent) {
            drop(output);
            // If the script declared another length, the node reports that.
            let _ = OutgoingBody::finish(outgoing, None);
            return Some(true);
        }
        let is_there = output.is_some();
        exchange.output = output;
        exchange.outgoing = Some(outgoing);
        Some(is_there)
    });
    Ok(begun.flatten().unwrap_or(false))
}

/// Returns the fields of a message. `message` names its kind in errors.
pub(crate) fn fields_of(
    ctx: &Ctx<'_>,
    pairs: &[(String, String)],
    message: &str,
) -> Result<Fields> {
    // A field's value is bytes, which scripts see as characters.
    let bytes = |value: &str| value.chars().map(|character| character as u8).collect();
    let list: Vec<(String, Vec<u8>)> = pairs
        .iter()
        .map(|(name, value)| (name.clone(), bytes(value)))
        .collect();
    // If all fields are valid, a single call is enough.
    if let Ok(fields) = Fields::from_list(&list) {
        return Ok(fields);
    }
    let fields = Fields::new();
    for (name, value) in &list {
        // Fields such as `connection` belong to the node. They are left out, as other servers do.
        if matches!(
            fields.append(name, value),
            Err(HeaderError::InvalidSyntax | HeaderError::Immutable)
        ) {
            let what = format!("{name:?} is no header field that {message} can have");
            return Err(Exception::throw_type(ctx, &what));
        }
    }
    Ok(fields)
}

/// The body of a response.
pub(crate) enum Body<'a> {
    /// No body.
    None,
    /// A complete body.
    Whole(&'a [u8]),
    /// A body that is sent in pieces.
    Sent,
}

fn send_all(output: &OutputStream, mut left: &[u8]) {
    while !left.is_empty() {
        match output.check_write() {
            Ok(0) => output.subscribe().block(),
            Ok(room) => {
                let count = left.len().min(usize::try_from(room).unwrap_or(usize::MAX));
                let (now, later) = left.split_at(count);
                if output.write(now).is_err() {
                    return;
                }
                left = later;
            }
            Err(_) => return,
        }
    }
}

/// Sends as much as there is room for. Returns the number of bytes, or a negative number if the
/// client has gone away.
pub(crate) fn send(bytes: &[u8]) -> i32 {
    let sent = with(|exchange| {
        let output = exchange.output.as_ref()?;
        let room = usize::try_from(output.check_write().ok()?).unwrap_or(usize::MAX);
        let count = bytes.len().min(room).min(1 << 30);
        if count > 0 {
            output.write(&bytes[..count]).ok()?;
        }
        i32::try_from(count).ok()
    });
    sent.flatten().unwrap_or(-1)
}

/// Calls `run` with the stream of the response's body, if it is open.
pub(crate) fn with_output<T>(run: impl FnOnce(&OutputStream) -> T) -> Option<T> {
    with(|exchange| exchange.output.as_ref().map(run)).flatten()
}

/// Returns a promise that is fulfilled when there is room for more.
pub(crate) fn sendable<'js>(ctx: &Ctx<'js>) -> Result<Promise<'js>> {
    let pollable = with(|exchange| exchange.output.as_ref().map(OutputStream::subscribe)).flatten();
    event_loop::wait_for(ctx, pollable.ok_or_else(|| no_request(ctx))?)
}

/// Completes the response.
pub(crate) fn finish() {
    with(|exchange| {
        exchange.output = None;
        if let Some(outgoing) = exchange.outgoing.take() {
            let _ = OutgoingBody::finish(outgoing, None);
        }
    });
}

/// Cuts the response off, so that the client sees that it is incomplete.
pub(crate) fn cut() {
    with(|exchange| {
        exchange.output = None;
        exchange.outgoing = None;
    });
}

/// Fails the request: there is no response of the script, and the node answers for the function.
pub(crate) fn fail(why: &str) {
    with(|exchange| {
        if let Some(out) = exchange.out.take() {
            ResponseOutparam::set(out, Err(ErrorCode::InternalError(Some(why.to_owned()))));
        }
    });
    cut();
}
