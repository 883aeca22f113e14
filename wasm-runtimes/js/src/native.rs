//! The native functions that `web/` uses.

use std::io::Write;

use rquickjs::{
    Array, ArrayBuffer, Class, Ctx, Exception, Object, Promise, Result, String as JsString,
    TypedArray, Value,
    function::{Func, Opt},
    promise::PromiseState,
    qjs,
};

use crate::{
    bindings::wasi::cli::environment::get_environment,
    builtins, commonjs, compression, crypto, event_loop,
    exchange::{self, Body},
    files, forms, memory, modules, outbound_native, random, script_error, settings, source_maps,
    stores, text, urls,
};

type Bytes<'js> = TypedArray<'js, u8>;

/// Returns all of them as one object.
pub(crate) fn all<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let all = Object::new(ctx.clone())?;
    all.set("log", Func::from(log))?;
    all.set(
        "mapStack",
        Func::from(|stack: String| source_maps::shown(&stack)),
    )?;
    all.set(
        "explain",
        Func::from(|message: String| script_error::explain(message)),
    )?;
    all.set("withoutIntl", script_error::WITHOUT_INTL)?;
    all.set("write", Func::from(write))?;
    all.set("now", Func::from(event_loop::now))?;
    all.set("origin", Func::from(event_loop::origin))?;
    all.set("random", Func::from(random::random))?;
    all.set("entropy", Func::from(random::entropy))?;

    all.set("encode", Func::from(encode))?;
    all.set("latin1", Func::from(latin1))?;
    all.set(
        "encodingOf",
        Func::from(|label: String| text::encoding_of(&label)),
    )?;
    all.set("decode", Func::from(decode))?;
    all.set("decoder", Func::from(decoder))?;
    all.set("decodeMore", Func::from(decode_more))?;

    all.set("url", Func::from(url))?;
    all.set(
        "setUrl",
        Func::from(|href: String, part, value: String| urls::set(&href, part, &value)),
    )?;
    all.set(
        "parseForm",
        Func::from(|text: String| urls::parse_form(&text)),
    )?;
    all.set("serialiseForm", Func::from(urls::serialise_form))?;
    all.set("parseMultipart", Func::from(parse_multipart))?;

    all.set("fieldName", Func::from(field_name))?;
    all.set("fieldValue", Func::from(field_value))?;
    all.set("headers", Func::from(exchange::headers))?;
    all.set(
        "accepts",
        Func::from(|codings: String| exchange::accepts(&codings)),
    )?;
    all.set(
        "requestUrl",
        Func::from(|ctx: Ctx<'js>| exchange::request_url(&ctx)),
    )?;
    all.set("ranOut", Func::from(memory::ran_out))?;
    all.set(
        "receive",
        Func::from(|ctx: Ctx<'js>| exchange::receive(&ctx)),
    )?;
    all.set("received", Func::from(received))?;
    all.set(
        "receivedText",
        Func::from(|ctx: Ctx<'js>| exchange::received_text(&ctx)),
    )?;
    all.set("receivePiece", Func::from(receive_piece))?;
    all.set("receivable", Func::from(receivable))?;
    all.set("respond", Func::from(respond))?;
    all.set("send", Func::from(send))?;
    all.set("sendable", Func::from(sendable))?;
    all.set("finish", Func::from(exchange::finish))?;
    all.set("cut", Func::from(exchange::cut))?;
    all.set("fail", Func::from(|why: String| exchange::fail(&why)))?;
    all.set("end", Func::from(exchange::set_ended))?;

    all.set(
        "builtin",
        Func::from(|ctx: Ctx<'js>, name: String| builtins::exports(&ctx, &name)),
    )?;
    all.set("builtinModules", Func::from(builtins::names))?;
    all.set(
        "commonjs",
        Func::from(|ctx: Ctx<'js>| commonjs::hooks(&ctx)),
    )?;
    all.set("main", Func::from(modules::main))?;
    all.set("promiseState", Func::from(promise_state))?;
    all.set("environment", Func::from(environment))?;
    all.set("memorySize", Func::from(memory::size))?;
    all.set("readFile", Func::from(read_file))?;
    all.set("listFolder", Func::from(list_folder))?;
    all.set("asyncContext", Func::from(async_context))?;
    all.set("setAsyncContext", Func::from(set_async_context))?;

    outbound_native::add(&all)?;

    all.set(
        "secret",
        Func::from(|ctx: Ctx<'js>, name: String| settings::secret(&ctx, &name)),
    )?;
    all.set("functionName", Func::from(settings::function_name))?;
    all.set("memoryLimit", Func::from(settings::memory_limit))?;

    all.set(
        "storeCheck",
        Func::from(|ctx: Ctx<'js>, store: String| stores::check(&ctx, &store)),
    )?;
    all.set("storeGet", Func::from(stores::get))?;
    all.set("storeSet", Func::from(stores::set))?;
    all.set("storeDelete", Func::from(stores::delete))?;
    all.set("storeList", Func::from(store_list))?;
    all.set("storeIncrement", Func::from(stores::increment))?;
    all.set("storeCompareAndSet", Func::from(stores::compare_and_set))?;
    all.set("storeValueMax", stores::VALUE_MAX)?;

    all.set("fileContent", Func::from(files::content))?;
    all.set("filePiece", Func::from(files::piece))?;
    all.set("fileStat", Func::from(file_stat))?;
    all.set("fileTag", Func::from(files::tag))?;
    all.set("fileList", Func::from(files::list))?;
    all.set("fileWrite", Func::from(files::write))?;
    all.set("fileDelete", Func::from(files::delete))?;

    all.set("digest", Func::from(digest))?;
    all.set("hmac", Func::from(hmac))?;
    all.set("isHmac", Func::from(is_hmac))?;
    all.set("crypto", Func::from(crypto::functions))?;

    all.set("codec", Func::from(compression::codec))?;
    all.set("putCodec", Func::from(put_codec))?;
    all.set("takeCodec", Func::from(compression::take))?;
    Ok(all)
}

/// Returns an array's bytes. They are empty if its buffer was transferred.
fn of<'a>(bytes: &'a Bytes<'_>) -> &'a [u8] {
    // SAFETY: these functions run no JavaScript, and only JavaScript could change or free the
    // buffer.
    unsafe { bytes.as_bytes() }.unwrap_or_default()
}

fn buffer(ctx: Ctx<'_>, bytes: Option<Vec<u8>>) -> Result<Option<ArrayBuffer<'_>>> {
    bytes.map(|bytes| ArrayBuffer::new(ctx, bytes)).transpose()
}

fn log(stream: u32, text: String) {
    // A failure to write the log cannot be reported anywhere.
    let _ = match stream {
        0 => writeln!(std::io::stdout(), "{text}"),
        _ => writeln!(std::io::stderr(), "{text}"),
    };
}

/// Writes a text that need not be a line.
fn write(stream: u32, text: String) {
    // A failure to write the log cannot be reported anywhere.
    let _ = match stream {
        0 => {
            let mut out = std::io::stdout();
            out.write_all(text.as_bytes()).and_then(|()| out.flush())
        }
        _ => std::io::stderr().write_all(text.as_bytes()),
    };
}

fn promise_state(promise: Promise<'_>) -> &'static str {
    match promise.state() {
        PromiseState::Pending => "pending",
        PromiseState::Resolved => "fulfilled",
        PromiseState::Rejected => "rejected",
    }
}

/// Returns the names and values of the environment.
fn environment() -> Vec<Vec<String>> {
    let variables = get_environment().into_iter();
    variables.map(|(name, value)| vec![name, value]).collect()
}

fn read_file(ctx: Ctx<'_>, path: String) -> Result<Option<Bytes<'_>>> {
    let content = modules::read_file(&path);
    content
        .map(|content| TypedArray::new(ctx, content))
        .transpose()
}

fn list_folder<'js>(ctx: Ctx<'js>, path: String) -> Result<Option<Vec<Array<'js>>>> {
    let Some(names) = modules::list_folder(&path) else {
        return Ok(None);
    };
    let entries = names.into_iter().map(|(name, is_folder)| {
        let entry = Array::new(ctx.clone())?;
        entry.set(0, name)?;
        entry.set(1, is_folder)?;
        Ok(entry)
    });
    entries.collect::<Result<_>>().map(Some)
}

// Functions that `modules.py` adds to QuickJS.
unsafe extern "C" {
    fn faasw_async_context(ctx: *mut qjs::JSContext) -> qjs::JSValue;
    fn faasw_set_async_context(ctx: *mut qjs::JSContext, context: qjs::JSValue);
}

fn async_context(ctx: Ctx<'_>) -> Value<'_> {
    // SAFETY: the function returns a value that this function owns.
    unsafe { Value::from_raw(ctx.clone(), faasw_async_context(ctx.as_raw().as_ptr())) }
}

fn set_async_context<'js>(ctx: Ctx<'js>, context: Value<'js>) {
    // SAFETY: the function takes a reference of its own.
    unsafe { faasw_set_async_context(ctx.as_raw().as_ptr(), context.as_raw()) }
}

/// Leaves the asynchronous context that a script entered outside of any task.
pub(crate) fn leave_async_context(ctx: &Ctx<'_>) {
    set_async_context(ctx.clone(), Value::new_undefined(ctx.clone()));
}

fn encode(ctx: Ctx<'_>, text: String) -> Result<Bytes<'_>> {
    TypedArray::new(ctx, text.into_bytes())
}

fn latin1(bytes: Bytes<'_>) -> String {
    of(&bytes).iter().copied().map(char::from).collect()
}

fn decode(
    ctx: Ctx<'_>,
    bytes: Bytes<'_>,
    name: String,
    fatal: bool,
    keeps_bom: bool,
) -> Result<String> {
    text::decode(&ctx, of(&bytes), &name, fatal, keeps_bom)
}

fn decoder(name: String, fatal: bool, keeps_bom: bool) -> u32 {
    text::decoder(&name, fatal, keeps_bom)
}

fn decode_more(ctx: Ctx<'_>, decoder: u32, bytes: Bytes<'_>, is_last: bool) -> Result<String> {
    text::decode_more(&ctx, decoder, of(&bytes), is_last)
}

fn url(text: String, base: Opt<Option<String>>) -> Option<Vec<String>> {
    urls::parse(&text, base.0.flatten().as_deref())
}

fn parse_multipart<'js>(
    ctx: Ctx<'js>,
    bytes: Bytes<'js>,
    boundary: String,
) -> Result<Option<Vec<Array<'js>>>> {
    let Some(parts) = forms::parse(of(&bytes), &boundary) else {
        return Ok(None);
    };
    // Setting an array's elements may run JavaScript, so `bytes` is not used any more.
    let parts = parts.into_iter().map(|part| {
        let array = Array::new(ctx.clone())?;
        array.set(0, part.name)?;
        array.set(1, part.file)?;
        array.set(2, part.kind)?;
        array.set(3, TypedArray::new(ctx.clone(), part.content)?)?;
        Ok(array)
    });
    parts.collect::<Result<_>>().map(Some)
}

fn field_name(ctx: Ctx<'_>, mut name: String) -> Result<String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        let what = format!("{name:?} is no name of a header field");
        return Err(Exception::throw_type(&ctx, &what));
    }
    name.make_ascii_lowercase();
    Ok(name)
}

fn field_value(ctx: Ctx<'_>, value: String) -> Result<String> {
    let trimmed = value.trim_matches(['\t', '\n', '\r', ' ']);
    let cannot_be =
        |character: char| matches!(character, '\0' | '\n' | '\r') || u32::from(character) > 0xff;
    if trimmed.contains(cannot_be) {
        let what = format!("{value:?} is no value of a header field");
        return Err(Exception::throw_type(&ctx, &what));
    }
    Ok(if trimmed.len() == value.len() {
        value
    } else {
        trimmed.to_owned()
    })
}

fn received(ctx: Ctx<'_>) -> Result<Bytes<'_>> {
    TypedArray::new(ctx, exchange::received())
}

fn receive_piece(ctx: Ctx<'_>) -> Result<Value<'_>> {
    Ok(match exchange::receive_piece(&ctx)? {
        None => Value::new_undefined(ctx),
        Some(None) => Value::new_null(ctx),
        Some(Some(piece)) => TypedArray::new(ctx, piece)?.into_value(),
    })
}

fn receivable(ctx: Ctx<'_>) -> Result<rquickjs::Promise<'_>> {
    exchange::receivable(&ctx)
}

fn sendable(ctx: Ctx<'_>) -> Result<rquickjs::Promise<'_>> {
    exchange::sendable(&ctx)
}

fn respond<'js>(
    ctx: Ctx<'js>,
    status: u16,
    fields: Array<'js>,
    body: Opt<Value<'js>>,
) -> Result<bool> {
    let mut pairs = Vec::with_capacity(fields.len());
    for pair in fields.iter::<Array>() {
        let pair = pair?;
        pairs.push((pair.get(0)?, pair.get(1)?));
    }
    let Some(body) = body.0 else {
        return exchange::respond(&ctx, status, &pairs, Body::Sent);
    };
    if let Some(text) = body.as_string() {
        let text = JsString::to_string(text)?;
        return exchange::respond(&ctx, status, &pairs, Body::Whole(text.as_bytes()));
    }
    if body.is_null() {
        return exchange::respond(&ctx, status, &pairs, Body::None);
    }
    let bytes = Bytes::from_value(body)?;
    exchange::respond(&ctx, status, &pairs, Body::Whole(of(&bytes)))
}

fn send(bytes: Bytes<'_>) -> i32 {
    exchange::send(of(&bytes))
}

fn store_list<'js>(
    ctx: Ctx<'js>,
    store: String,
    prefix: String,
    limit: usize,
    behind: Opt<Option<String>>,
) -> Result<Array<'js>> {
    let (keys, is_last) = stores::list(ctx.clone(), store, prefix, limit, behind.0.flatten())?;
    let list = Array::new(ctx)?;
    list.set(0, keys)?;
    list.set(1, is_last)?;
    Ok(list)
}

fn file_stat<'js>(ctx: Ctx<'js>, path: String) -> Result<Option<Array<'js>>> {
    let Some((kind, size)) = files::stat(ctx.clone(), path)? else {
        return Ok(None);
    };
    let stat = Array::new(ctx)?;
    stat.set(0, kind)?;
    stat.set(1, size)?;
    Ok(Some(stat))
}

fn digest<'js>(ctx: Ctx<'js>, name: String, data: Bytes<'js>) -> Result<Option<ArrayBuffer<'js>>> {
    buffer(ctx, crypto::digest(&name, of(&data)))
}

fn hmac<'js>(
    ctx: Ctx<'js>,
    name: String,
    key: Bytes<'js>,
    data: Bytes<'js>,
) -> Result<Option<ArrayBuffer<'js>>> {
    buffer(ctx, crypto::hmac(&name, of(&key), of(&data)))
}

fn is_hmac<'js>(name: String, key: Bytes<'js>, data: Bytes<'js>, code: Bytes<'js>) -> bool {
    crypto::is_hmac(&name, of(&key), of(&data), of(&code))
}

fn put_codec<'js>(codec: Class<'js, compression::Codec>, bytes: Bytes<'js>) {
    compression::put(codec, of(&bytes));
}
