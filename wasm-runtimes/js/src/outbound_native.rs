//! The native functions of `web/fetch.js`.

use rquickjs::{Array, Ctx, IntoJs, Object, Result, TypedArray, Value, function::Func};

use crate::{
    exchange, outbound,
    outbound::{Received, Relayed, Request, Upload},
    outbound_errors, text,
};

type Bytes<'js> = TypedArray<'js, u8>;

/// Adds the functions to those of `native.rs`.
pub(crate) fn add<'js>(all: &Object<'js>) -> Result<()> {
    all.set("mayCall", Func::from(exchange::is_under_way))?;
    all.set("call", Func::from(call))?;
    all.set(
        "callSent",
        Func::from(|number| outbound::sent(number) as u32),
    )?;
    all.set("callSend", Func::from(send))?;
    all.set("callSendable", Func::from(outbound::sendable))?;
    all.set("callFinish", Func::from(outbound::finish))?;
    all.set("callAnswered", Func::from(outbound::answered))?;
    all.set("callHead", Func::from(head))?;
    all.set("callReason", Func::from(outbound_errors::reason))?;
    all.set(
        "callDecode",
        Func::from(|number, codings: String| outbound::decode(number, &codings)),
    )?;
    all.set("callReadable", Func::from(outbound::readable))?;
    all.set("callRead", Func::from(read))?;
    all.set("callReceive", Func::from(receive))?;
    all.set("callReceived", Func::from(received))?;
    all.set("callReceivedText", Func::from(received_text))?;
    all.set("callRelay", Func::from(relay))?;
    all.set("callClose", Func::from(outbound::close))?;
    all.set("collect", Func::from(|ctx: Ctx<'js>| ctx.run_gc()))?;
    all.set(
        "redirected",
        Func::from(|base: String, location: String| outbound::redirected(&base, &location)),
    )?;
    all.set("dataUrl", Func::from(data_url))
}

/// Returns an array's bytes. They are empty if its buffer was transferred.
fn of<'a>(bytes: &'a Bytes<'_>) -> &'a [u8] {
    // SAFETY: these functions run no JavaScript while they use the bytes, and only JavaScript could
    // change or free the buffer.
    unsafe { bytes.as_bytes() }.unwrap_or_default()
}

/// Sends a request with these fields, in pairs, and this body (null: none; true: sent later). The
/// fields that describe a body are left out if `left_out` is 1 or 3, and those with credentials if
/// it is 2 or 3. Returns the number of the call, or the reason why nothing was sent.
fn call<'js>(
    ctx: Ctx<'js>,
    method: String,
    url: String,
    fields: Array<'js>,
    body: Value<'js>,
    left_out: u32,
    cache: String,
) -> Result<Value<'js>> {
    let mut pairs = Vec::with_capacity(fields.len());
    for pair in fields.iter::<Array>() {
        let pair = pair?;
        pairs.push((pair.get(0)?, pair.get(1)?));
    }
    let bytes = body.is_object().then(|| Bytes::from_value(body.clone()));
    let bytes = bytes.transpose()?;
    let request = Request {
        method,
        url,
        fields: pairs,
        body: match &bytes {
            Some(bytes) => Upload::Whole(of(bytes)),
            None if body.is_null() => Upload::None,
            None => Upload::Streamed,
        },
        drops_body: left_out & 1 != 0,
        drops_credentials: left_out & 2 != 0,
        cache,
    };
    match outbound::begin(&ctx, request)? {
        Ok(number) => number.into_js(&ctx),
        Err(why) => why.into_js(&ctx),
    }
}

/// Sends the bytes behind the first `from` ones.
fn send(number: u32, bytes: Bytes<'_>, from: u32) -> i32 {
    outbound::send(number, of(&bytes).get(from as usize..).unwrap_or_default())
}

/// Returns `[status, fields]`, a text if there is no response, or undefined if it has not arrived.
fn head(ctx: Ctx<'_>, number: u32) -> Result<Value<'_>> {
    match outbound::head(number) {
        None => Ok(Value::new_undefined(ctx)),
        Some(Err(why)) => why.into_js(&ctx),
        Some(Ok((status, fields))) => {
            let head = Array::new(ctx.clone())?;
            head.set(0, status)?;
            head.set(1, fields)?;
            Ok(head.into_value())
        }
    }
}

/// Returns bytes, null at the end of the body, a text if it is incomplete, or undefined if nothing
/// has arrived.
fn taken(ctx: Ctx<'_>, received: Received) -> Result<Value<'_>> {
    match received {
        Received::Piece(piece) => Ok(TypedArray::new(ctx, piece)?.into_value()),
        Received::Pending => Ok(Value::new_undefined(ctx)),
        Received::End => Ok(Value::new_null(ctx)),
        Received::Failed(why) => why.into_js(&ctx),
    }
}

fn read(ctx: Ctx<'_>, number: u32) -> Result<Value<'_>> {
    taken(ctx, outbound::read(number))
}

fn receive(ctx: Ctx<'_>, number: u32) -> Result<Value<'_>> {
    taken(ctx, outbound::receive(number))
}

fn received(ctx: Ctx<'_>, number: u32) -> Result<Bytes<'_>> {
    TypedArray::new(ctx, outbound::received(number))
}

fn received_text(ctx: Ctx<'_>, number: u32) -> Result<String> {
    text::of_body(&ctx, outbound::received(number))
}

/// Returns a text if the body is incomplete, or 0: it was sent; 1: more has not arrived yet; 2: the
/// client's connection has no room; 3: the client has gone away.
fn relay(ctx: Ctx<'_>, number: u32) -> Result<Value<'_>> {
    match outbound::relay(number) {
        Relayed::All => 0.into_js(&ctx),
        Relayed::NeedsBytes => 1.into_js(&ctx),
        Relayed::NeedsRoom => 2.into_js(&ctx),
        Relayed::ClientIsGone => 3.into_js(&ctx),
        Relayed::Failed(why) => why.into_js(&ctx),
    }
}

fn data_url<'js>(ctx: Ctx<'js>, url: String) -> Result<Value<'js>> {
    let Some((kind, bytes)) = outbound::data(&url) else {
        return Ok(Value::new_null(ctx));
    };
    let both = Array::new(ctx.clone())?;
    both.set(0, kind)?;
    both.set(1, Bytes::new(ctx, bytes)?)?;
    Ok(both.into_value())
}
