//! Outbound calls of scripts, on `wasi:http/outgoing-handler`.
//!
//! `web/fetch.js` has the rules of the Fetch Standard; this module sends one request and receives
//! its response. A call has a number, which is never used again. A response that a script keeps
//! beyond its request therefore never reaches a later call.
//!
//! Nothing is allocated before the first call.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use rquickjs::{Ctx, Exception, Promise, Result};
use url::{Position, Url};

use crate::{
    bindings::wasi::{
        http::{
            outgoing_handler,
            types::{
                Fields, FutureIncomingResponse, IncomingBody, Method, OutgoingBody,
                OutgoingRequest, Scheme, http_error_code,
            },
        },
        io::{
            poll::Pollable,
            streams::{InputStream, OutputStream, StreamError},
        },
    },
    content_coding::{Decoded, Decoder},
    event_loop, exchange, outbound_errors,
};

/// How many bytes of a response's body are read at once.
const PIECE: u64 = 64 << 10;

/// How many pieces a relayed body may send before other work of the script gets its turn.
const PIECES_AT_ONCE: u32 = 16;

/// The fields that describe a request's body. A redirect that drops the body drops them, too.
const OF_THE_BODY: [&str; 5] = [
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-type",
];

/// The fields that are only for the server that the script named. A redirect to another origin
/// drops them.
const CREDENTIALS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// The codings that a request accepts unless the script says otherwise, as in Workers.
const CODINGS: &str = "br, gzip";

/// A call under way. Each stream is declared before the body to which it belongs, because fields
/// are dropped in this order.
#[derive(Default)]
struct Call {
    input: Option<InputStream>,
    body: Option<IncomingBody>,
    future: Option<FutureIncomingResponse>,
    output: Option<OutputStream>,
    outgoing: Option<OutgoingBody>,
    /// Bytes of the request's body that were sent together with the head.
    sent: usize,
    /// Bytes of the response's body that were read, but that the script has not taken yet.
    received: Vec<u8>,
    /// The decoder of the response's body, if it has content codings.
    decoder: Option<Decoder>,
}

thread_local! {
    static CALLS: RefCell<BTreeMap<u32, Call>> = const { RefCell::new(BTreeMap::new()) };
    static LAST: Cell<u32> = const { Cell::new(0) };
}

/// A request that is not sent yet.
pub(crate) struct Request<'a> {
    pub(crate) method: String,
    pub(crate) url: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Upload<'a>,
    /// Whether the fields that describe a body are left out.
    pub(crate) drops_body: bool,
    /// Whether [`CREDENTIALS`] are left out.
    pub(crate) drops_credentials: bool,
    /// The request's cache mode.
    pub(crate) cache: String,
}

/// The body of a request.
pub(crate) enum Upload<'a> {
    /// No body.
    None,
    /// A complete body.
    Whole(&'a [u8]),
    /// A body that is sent in pieces.
    Streamed,
}

/// The outcome of reading from a response's body.
pub(crate) enum Received {
    /// Some bytes.
    Piece(Vec<u8>),
    /// Nothing has arrived yet.
    Pending,
    /// The body is complete.
    End,
    /// The body is incomplete, for this reason.
    Failed(String),
}

/// The outcome of relaying a response's body to the client.
pub(crate) enum Relayed {
    /// The whole body was sent.
    All,
    /// Nothing more has arrived yet.
    NeedsBytes,
    /// The client's connection has no room.
    NeedsRoom,
    /// The client has gone away.
    ClientIsGone,
    /// The body is incomplete, for this reason.
    Failed(String),
}

/// The head of a response: its status, and its fields in pairs.
pub(crate) type Head = (u16, Vec<Vec<String>>);

/// Returns the error text for a call that ended with the request of the client, or was closed.
fn over() -> String {
    "the call has ended".to_owned()
}

fn with<T>(number: u32, run: impl FnOnce(&mut Call) -> T) -> Option<T> {
    CALLS.with_borrow_mut(|calls| calls.get_mut(&number).map(run))
}

fn method_of(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        "PATCH" => Method::Patch,
        other => Method::Other(other.to_owned()),
    }
}

impl Request<'_> {
    /// Returns the fields to send: those of the script, and those that the Fetch Standard adds.
    fn fields(&mut self) -> Vec<(String, String)> {
        let length = match self.body {
            Upload::None if matches!(self.method.as_str(), "POST" | "PUT") => Some(0),
            Upload::Whole(bytes) => Some(bytes.len()),
            Upload::None | Upload::Streamed => None,
        };
        let is_streamed = matches!(self.body, Upload::Streamed);
        let is_sent = |name: &str| {
            (!self.drops_body || !OF_THE_BODY.contains(&name))
                && (!self.drops_credentials || !CREDENTIALS.contains(&name))
                && (is_streamed || name != "content-length")
        };
        let mut fields = std::mem::take(&mut self.fields);
        fields.retain(|(name, _)| is_sent(name));
        let has_range = fields.iter().any(|(name, _)| name == "range");
        let mut add = |name: &str, value: &str| {
            if !fields.iter().any(|(other, _)| other == name) {
                fields.push((name.to_owned(), value.to_owned()));
            }
        };
        if let Some(length) = length {
            add("content-length", &length.to_string());
        }
        add("accept", "*/*");
        // A range is one of the coded body, which cannot be decoded alone (Fetch, section 4.6).
        add(
            "accept-encoding",
            if has_range { "identity" } else { CODINGS },
        );
        add("user-agent", "faasw");
        match self.cache.as_str() {
            "no-cache" => add("cache-control", "max-age=0"),
            "no-store" | "reload" => {
                add("pragma", "no-cache");
                add("cache-control", "no-cache");
            }
            _ => {}
        }
        fields
    }
}

/// Sends a request, with as much of its body as there is room for. Returns the number of the call,
/// or the reason why nothing was sent.
pub(crate) fn begin(
    ctx: &Ctx<'_>,
    mut request: Request<'_>,
) -> Result<std::result::Result<u32, String>> {
    let Ok(url) = Url::parse(&request.url) else {
        return Ok(Err("HTTP-request-URI-invalid: the URL is invalid".into()));
    };
    let fields: Fields = exchange::fields_of(ctx, &request.fields(), "a request")?;
    Ok(send_head(&url, &request, fields))
}

fn send_head(url: &Url, request: &Request<'_>, fields: Fields) -> std::result::Result<u32, String> {
    let outgoing_request = OutgoingRequest::new(fields);
    let scheme = match url.scheme() {
        "http" => Scheme::Http,
        _ => Scheme::Https,
    };
    let target = &url[Position::BeforePath..Position::AfterQuery];
    let authority = &url[Position::BeforeHost..Position::AfterPort];
    let is_accepted = outgoing_request.set_scheme(Some(&scheme)).is_ok()
        && outgoing_request
            .set_method(&method_of(&request.method))
            .is_ok()
        && outgoing_request.set_authority(Some(authority)).is_ok()
        && outgoing_request.set_path_with_query(Some(target)).is_ok();
    if !is_accepted {
        return Err("HTTP-request-URI-invalid: the node cannot send this URL".into());
    }
    let mut call = Call::default();
    let bytes = match request.body {
        Upload::None => None,
        Upload::Whole([]) => None,
        Upload::Whole(bytes) => Some(bytes),
        Upload::Streamed => Some([].as_slice()),
    };
    if let Some(bytes) = bytes {
        let outgoing = outgoing_request.body().map_err(|()| over())?;
        call.output = outgoing.write().ok();
        call.outgoing = Some(outgoing);
        if !bytes.is_empty() {
            call.sent = call.send(bytes).unwrap_or(0);
        }
        if matches!(request.body, Upload::Whole(bytes) if bytes.len() == call.sent) {
            call.finish();
        }
    }
    let sent = outgoing_handler::handle(outgoing_request, None);
    call.future = Some(sent.map_err(|code| outbound_errors::words(&code))?);
    let number = LAST.get().wrapping_add(1).max(1);
    LAST.set(number);
    CALLS.with_borrow_mut(|calls| calls.insert(number, call));
    Ok(number)
}

impl Call {
    /// Sends as much as there is room for. Returns `None` if the server takes no more.
    fn send(&self, bytes: &[u8]) -> Option<usize> {
        let output = self.output.as_ref()?;
        let room = usize::try_from(output.check_write().ok()?).unwrap_or(usize::MAX);
        let count = bytes.len().min(room).min(1 << 30);
        if count > 0 {
            output.write(&bytes[..count]).ok()?;
        }
        Some(count)
    }

    /// Completes the request's body.
    fn finish(&mut self) {
        self.output = None;
        if let Some(outgoing) = self.outgoing.take() {
            // If the script declared another length, the answer of the node says so.
            let _ = OutgoingBody::finish(outgoing, None);
        }
    }

    /// Closes all that the call has open.
    fn close(&mut self) {
        self.input = None;
        self.body = None;
        self.future = None;
        self.output = None;
        self.outgoing = None;
    }

    /// Returns the next piece of the body, decoded.
    fn read(&mut self) -> Received {
        loop {
            let Some(decoder) = &mut self.decoder else {
                return self.read_coded();
            };
            match decoder.next() {
                Ok(Decoded::Piece(piece)) => return Received::Piece(piece),
                Ok(Decoded::End) => return Received::End,
                Ok(Decoded::NeedsInput) => {}
                Err(why) => {
                    self.close();
                    let why = format!("HTTP-response-content-coding: {why}");
                    return Received::Failed(why);
                }
            }
            match self.read_coded() {
                Received::Piece(piece) => {
                    if let Some(decoder) = &mut self.decoder {
                        decoder.put(piece);
                    }
                }
                Received::End => {
                    if let Some(decoder) = &mut self.decoder {
                        decoder.finish();
                    }
                }
                other => return other,
            }
        }
    }

    /// Returns the next piece of the body as the server sent it.
    fn read_coded(&mut self) -> Received {
        let Some(input) = &self.input else {
            return Received::End;
        };
        match input.read(PIECE) {
            Ok(piece) if piece.is_empty() => Received::Pending,
            Ok(piece) => Received::Piece(piece),
            Err(error) => self.end(error),
        }
    }

    /// Closes a call whose response has ended.
    fn end(&mut self, error: StreamError) -> Received {
        let why = match error {
            StreamError::Closed => None,
            StreamError::LastOperationFailed(error) => Some(match http_error_code(&error) {
                Some(code) => outbound_errors::words(&code),
                None => error.to_debug_string(),
            }),
        };
        self.close();
        why.map_or(Received::End, Received::Failed)
    }
}

/// Returns how many bytes of a complete body were sent with the head.
pub(crate) fn sent(number: u32) -> usize {
    with(number, |call| call.sent).unwrap_or(0)
}

/// Sends as much of the request's body as there is room for. Returns the number of bytes, or a
/// negative number if the server takes no more.
pub(crate) fn send(number: u32, bytes: &[u8]) -> i32 {
    let sent = with(number, |call| {
        let sent = call.send(bytes);
        if sent.is_none() {
            // The body stays incomplete, and the server learns that it does.
            call.output = None;
            call.outgoing = None;
        }
        sent
    });
    sent.flatten()
        .and_then(|sent| i32::try_from(sent).ok())
        .unwrap_or(-1)
}

/// Completes the request's body.
pub(crate) fn finish(number: u32) {
    with(number, Call::finish);
}

/// Returns the head of the response, the reason why there is none, or `None` if it has not arrived
/// yet.
pub(crate) fn head(number: u32) -> Option<std::result::Result<Head, String>> {
    let head = with(number, |call| {
        let answer = call.future.as_ref().map(FutureIncomingResponse::get)?;
        let answer = answer?.unwrap_or(Err(
            crate::bindings::wasi::http::types::ErrorCode::InternalError(None),
        ));
        let response = match answer {
            Ok(response) => response,
            Err(code) => {
                call.close();
                return Some(Err(outbound_errors::words(&code)));
            }
        };
        let fields = exchange::pairs(response.headers().entries());
        let status = response.status();
        call.body = response.consume().ok();
        call.input = call.body.as_ref().and_then(|body| body.stream().ok());
        call.future = None;
        Some(Ok((status, fields)))
    });
    head.unwrap_or_else(|| Some(Err(over())))
}

/// Has the response's body decoded when it is read. Returns false if it stays as it is, because the
/// value of its field `content-encoding` names no coding, or an unknown one.
pub(crate) fn decode(number: u32, codings: &str) -> bool {
    let decoder = Decoder::of(codings);
    let decodes = decoder.is_some();
    with(number, |call| call.decoder = decoder);
    decodes
}

/// Returns the next piece of the response's body.
pub(crate) fn read(number: u32) -> Received {
    with(number, Call::read).unwrap_or_else(|| Received::Failed(over()))
}

/// Takes in what has arrived of the response's body. Never returns a piece: [`received`] has all of
/// them.
pub(crate) fn receive(number: u32) -> Received {
    let received = with(number, |call| {
        loop {
            match call.read() {
                Received::Piece(piece) if call.received.is_empty() => call.received = piece,
                Received::Piece(piece) => {
                    if call.received.try_reserve(piece.len()).is_err() {
                        call.close();
                        let why = "out of memory: the response is too large for the function";
                        return Received::Failed(why.into());
                    }
                    call.received.extend_from_slice(&piece);
                }
                other => return other,
            }
        }
    });
    received.unwrap_or_else(|| Received::Failed(over()))
}

/// Takes the received bytes of a complete response, and closes the call.
pub(crate) fn received(number: u32) -> Vec<u8> {
    let call = CALLS.with_borrow_mut(|calls| calls.remove(&number));
    call.map(|mut call| std::mem::take(&mut call.received))
        .unwrap_or_default()
}

/// Moves the response's body to the client, as the server sent it.
pub(crate) fn relay(number: u32) -> Relayed {
    let relayed = with(number, |call| {
        for _ in 0..PIECES_AT_ONCE {
            let Some(input) = &call.input else {
                return Relayed::All;
            };
            let spliced = exchange::with_output(|output| {
                let room = output.check_write().map_err(|_| Relayed::ClientIsGone)?;
                if room == 0 {
                    return Err(Relayed::NeedsRoom);
                }
                Ok(output.splice(input, room.min(PIECE)))
            });
            match spliced {
                None => return Relayed::ClientIsGone,
                Some(Err(blocked)) => return blocked,
                Some(Ok(Ok(0))) => return Relayed::NeedsBytes,
                Some(Ok(Ok(_))) => {}
                Some(Ok(Err(error))) => {
                    return match call.end(error) {
                        Received::Failed(why) => Relayed::Failed(why),
                        _ => Relayed::All,
                    };
                }
            }
        }
        Relayed::NeedsBytes
    });
    relayed.unwrap_or_else(|| Relayed::Failed(over()))
}

/// Returns a promise that is fulfilled when the pollable is ready, or the call is closed.
fn wait<'js>(
    ctx: &Ctx<'js>,
    number: u32,
    pollable: impl FnOnce(&Call) -> Option<Pollable>,
) -> Result<Promise<'js>> {
    let pollable = with(number, |call| pollable(call)).flatten();
    let pollable = pollable.ok_or_else(|| Exception::throw_type(ctx, &over()))?;
    event_loop::wait_for_call(ctx, pollable, number)
}

/// Returns a promise that is fulfilled when the head of the response has arrived.
pub(crate) fn answered<'js>(ctx: Ctx<'js>, number: u32) -> Result<Promise<'js>> {
    wait(&ctx, number, |call| {
        call.future.as_ref().map(FutureIncomingResponse::subscribe)
    })
}

/// Returns a promise that is fulfilled when more of the response's body has arrived.
pub(crate) fn readable<'js>(ctx: Ctx<'js>, number: u32) -> Result<Promise<'js>> {
    wait(&ctx, number, |call| {
        call.input.as_ref().map(InputStream::subscribe)
    })
}

/// Returns a promise that is fulfilled when the server takes more of the request's body.
pub(crate) fn sendable<'js>(ctx: Ctx<'js>, number: u32) -> Result<Promise<'js>> {
    wait(&ctx, number, |call| {
        call.output.as_ref().map(OutputStream::subscribe)
    })
}

/// Closes a call. Fulfils the promises that wait for it.
pub(crate) fn close(ctx: Ctx<'_>, number: u32) {
    // The pollables are children of the streams.
    event_loop::forget_call(&ctx, number);
    drop(CALLS.with_borrow_mut(|calls| calls.remove(&number)));
}

/// Closes all calls at the end of the request.
pub(crate) fn end() {
    drop(CALLS.take());
}

/// Returns the URL of a redirect. The value of the field `location` has a character for each byte.
pub(crate) fn redirected(base: &str, location: &str) -> Option<String> {
    let bytes: Vec<u8> = location.chars().map(|character| character as u8).collect();
    let base = Url::parse(base).ok()?;
    let mut url = base.join(&String::from_utf8_lossy(&bytes)).ok()?;
    if url.fragment().is_none() {
        url.set_fragment(base.fragment());
    }
    Some(url.into())
}

/// Returns the type and the content of a `data:` URL.
pub(crate) fn data(url: &str) -> Option<(String, Vec<u8>)> {
    let url = data_url::DataUrl::process(url).ok()?;
    let (bytes, _) = url.decode_to_vec().ok()?;
    Some((url.mime_type().to_string(), bytes))
}
