//! The interpreter in the three parts of its life: initialisation, script, request.

use std::cell::{Cell, RefCell};

use memchr::memmem;
use rquickjs::{
    CaughtError, Context, Ctx, FromJs, Function, Module, Object, Persistent, Runtime, Value,
    module::WriteOptions, qjs::JSContext,
};

use crate::{
    bindings::{
        exports::faasw::engine::script::Error,
        wasi::http::types::{IncomingRequest, ResponseOutparam},
    },
    builtins, commonjs, event_loop,
    exchange::{self, Exchange},
    files,
    memory::{self, Memory},
    modules, native, outbound, random, script_error, settings,
};

/// The text of one of `PARTS`.
macro_rules! part {
    ($file:literal) => {
        concat!(
            "(function (native, shared) {\n\"use strict\";\n",
            include_str!($file),
            "})"
        )
    };
}

/// The built-in JavaScript, as one function of the native functions and the streams library.
const WEB: &str = concat!(
    "(function (native, streams, parts) {\n\"use strict\";\n",
    "const { ReadableStream, WritableStream, TransformStream } = streams;\n",
    include_str!("../web/parts.js"),
    include_str!("../web/events.js"),
    include_str!("../web/console.js"),
    include_str!("../web/timers.js"),
    include_str!("../web/text.js"),
    include_str!("../web/pairs.js"),
    include_str!("../web/url.js"),
    include_str!("../web/headers.js"),
    include_str!("../web/blob.js"),
    include_str!("../web/body.js"),
    include_str!("../web/fetch.js"),
    include_str!("../web/clone.js"),
    include_str!("../web/crypto.js"),
    include_str!("../web/stores.js"),
    include_str!("../web/files.js"),
    include_str!("../web/caches.js"),
    include_str!("../web/env.js"),
    include_str!("../web/lambda.js"),
    include_str!("../web/serve.js"),
    "})"
);

/// An interface that few scripts use, as a function of the native functions and of what
/// `web/parts.js` shares.
struct Part {
    name: &'static str,
    /// The name of its functions in stacks.
    file: &'static str,
    text: &'static str,
    /// A script that has one of these texts gets the part when it is deployed, so that its requests
    /// do not make the part anew.
    marks: &'static [&'static str],
}

const PARTS: [Part; 5] = [
    Part {
        name: "subtle",
        file: "faasw:subtle",
        text: part!("../web/subtle.js"),
        marks: &["subtle"],
    },
    Part {
        name: "compression",
        file: "faasw:compression",
        text: part!("../web/compression.js"),
        marks: &["CompressionStream", "DecompressionStream"],
    },
    Part {
        name: "messages",
        file: "faasw:messages",
        text: part!("../web/messages.js"),
        marks: &["MessageChannel"],
    },
    Part {
        name: "errors",
        file: "faasw:errors",
        text: part!("../web/errors.js"),
        marks: &[],
    },
    Part {
        name: "patterns",
        file: "faasw:patterns",
        text: PATTERNS,
        marks: &["URLPattern"],
    },
];

/// Modules of Node.js that have globals, each with the text that a script contains if it uses the
/// global. The modules are evaluated when such a script is deployed, so that its requests do not
/// compile them anew.
const GLOBALS: [(&str, &str); 2] = [("node:buffer", "Buffer"), ("node:process", "process.")];

/// A script that has one of these texts can read its own files while it answers a request.
const FILE_MARKS: [&str; 5] = ["\"fs\"", "'fs'", "`fs`", "node:fs", "fs/promises"];

/// npm's urlpattern-polyfill, which build.sh puts there. It is built for CommonJS.
const PATTERNS: &str = concat!(
    "(function () {\nconst module = {};\n",
    include_str!("../vendor/urlpattern.js"),
    "\nreturn module.exports })"
);

/// npm's web-streams-polyfill, which build.sh puts there.
const STREAMS: &str = include_str!("../vendor/web-streams.js");

/// How much of the stack in linear memory scripts may use, in bytes; the rest is for Rust. The
/// other stack, of native frames, has 1 MiB. This limit is reached first, whatever kind of
/// recursion a script tries.
const STACK: usize = 320 << 10;

/// How much a request usually allocates, in bytes.
const ROOM: usize = 512 << 10;

/// How much a request allocates before the first garbage collection, in bytes.
const UNCOLLECTED: usize = 2 << 20;

struct Interpreter {
    context: Context,
    runtime: Runtime,
    hooks: Hooks,
    /// Bytes that the script had allocated when it was frozen.
    allocated: Cell<usize>,
}

/// The functions that `web/serve.js` exports to Rust.
struct Hooks {
    adopt: Hook,
    api: Hook,
    configure: Hook,
    dispatch: Hook,
    describe: Hook,
    frames: Hook,
    node_host: Hook,
    prepare: Hook,
    run_timer: Hook,
    unhandled: Hook,
    warm_up: Hook,
}

pub(crate) struct Hook(Persistent<Function<'static>>);

impl Hook {
    fn of<'js>(hooks: &Object<'js>, name: &str) -> rquickjs::Result<Self> {
        let function: Function = hooks.get(name)?;
        Ok(Self(Persistent::save(hooks.ctx(), function)))
    }

    pub(crate) fn get<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<Function<'js>> {
        self.0.clone().restore(ctx)
    }
}

thread_local! {
    static INTERPRETER: RefCell<Option<&'static Interpreter>> = const { RefCell::new(None) };
    /// Whether [`init`] runs the script.
    static IS_STARTING: Cell<bool> = const { Cell::new(false) };
    /// The error of the first unhandled rejection while [`init`] runs the script.
    static REJECTION: RefCell<Option<Error>> = const { RefCell::new(None) };
}

fn interpreter() -> &'static Interpreter {
    INTERPRETER.with(|it| it.borrow().expect("the interpreter was made"))
}

/// Creates the interpreter.
pub(crate) fn begin() {
    let runtime = Runtime::new_with_alloc(Memory).expect("a runtime");
    // No garbage is collected before a request, because a collection writes to pages that all forks
    // share.
    runtime.set_gc_threshold(usize::MAX);
    runtime.set_max_stack_size(STACK);
    runtime.set_host_promise_rejection_tracker(Some(Box::new(event_loop::rejected)));
    runtime.set_loader(modules::Resolver, modules::Loader);
    let context = Context::full(&runtime).expect("a context");
    random::reseed();
    let hooks = context.with(|ctx| match install(&ctx) {
        Ok(hooks) => hooks,
        Err(error) => panic!("{}", CaughtError::from_error(&ctx, error)),
    });
    let interpreter = Interpreter {
        context,
        runtime,
        hooks,
        allocated: Cell::new(0),
    };
    INTERPRETER.with(|it| *it.borrow_mut() = Some(Box::leak(Box::new(interpreter))));
    warm_up();
    make_room();
    make_lasting();
    memory::begin();
}

fn install(ctx: &Ctx<'_>) -> rquickjs::Result<Hooks> {
    // The library is built for CommonJS, among others.
    let streams =
        format!("(() => {{ const exports = {{}}, module = {{}};\n{STREAMS}\nreturn exports }})()");
    let streams: Object = built_in(ctx, "faasw:streams", &streams)?;
    let web: Function = built_in(ctx, "faasw:web", WEB)?;
    let parts = Object::new(ctx.clone())?;
    for part in &PARTS {
        parts.set(part.name, compiled(ctx, part.file, part.text)?)?;
    }
    let hooks: Object = web.call((native::all(ctx)?, streams, parts))?;
    Ok(Hooks {
        adopt: Hook::of(&hooks, "adopt")?,
        api: Hook::of(&hooks, "api")?,
        configure: Hook::of(&hooks, "configure")?,
        dispatch: Hook::of(&hooks, "dispatch")?,
        describe: Hook::of(&hooks, "describe")?,
        frames: Hook::of(&hooks, "frames")?,
        node_host: Hook::of(&hooks, "nodeHost")?,
        prepare: Hook::of(&hooks, "prepare")?,
        run_timer: Hook::of(&hooks, "runTimer")?,
        unhandled: Hook::of(&hooks, "unhandled")?,
        warm_up: Hook::of(&hooks, "warmUp")?,
    })
}

/// Evaluates an expression. Its functions appear with the name `name` in stacks.
pub(crate) fn built_in<'js, T: FromJs<'js>>(
    ctx: &Ctx<'js>,
    name: &str,
    expression: &str,
) -> rquickjs::Result<T> {
    let module = Module::declare(ctx.clone(), name, format!("export default {expression}"))?;
    let (module, done) = module.eval()?;
    done.finish::<()>()?;
    module.get("default")
}

/// Compiles a function that a script may call later. Its bytecode is all that is kept, because the
/// texts of nested functions would take more memory than that.
fn compiled<'js>(ctx: &Ctx<'js>, name: &str, text: &str) -> rquickjs::Result<Function<'js>> {
    let module = Module::declare(ctx.clone(), name, format!("export default {text}"))?;
    let bytecode = module.write(WriteOptions {
        strip_source: true,
        ..WriteOptions::default()
    })?;
    // SAFETY: this engine wrote the bytecode, and the bytes last.
    let module = unsafe { Module::load(ctx.clone(), Vec::leak(bytecode))? };
    let (module, done) = module.eval()?;
    done.finish::<()>()?;
    module.get("default")
}

unsafe extern "C" {
    /// A function that `lasting.py` adds to QuickJS.
    fn JS_MakeLasting(ctx: *mut JSContext);
}

/// Makes all present values last as long as the instance. References to them are no longer counted,
/// and collections do not visit them, so that requests do not write to their pages.
fn make_lasting() {
    interpreter().context.with(|ctx| {
        // SAFETY: no script runs.
        unsafe { JS_MakeLasting(ctx.as_raw().as_ptr()) }
    });
}

/// Grows the memory for a request in advance, because memory that grows only in a request is not
/// part of the snapshot that is forked.
fn make_room() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(ROOM)));
}

/// Runs once what every request runs. Afterwards tables have grown, and free memory lies together.
fn warm_up() {
    let interpreter = interpreter();
    interpreter.context.with(|ctx| {
        let done = interpreter
            .hooks
            .warm_up
            .get(&ctx)
            .and_then(|hook| hook.call::<_, ()>(()));
        if let Err(error) = done {
            panic!("{}", CaughtError::from_error(&ctx, error));
        }
    });
}

/// Runs a script's modules and finds its handler.
pub(crate) fn init(files: Vec<(String, Vec<u8>)>) -> Result<(), Error> {
    let interpreter = interpreter();
    random::reseed();
    event_loop::start_clock();
    let Some(main) = files.first().map(|(path, _)| path.clone()) else {
        return Err(script_error::plain("the script has no files"));
    };
    let wanted: Vec<&str> = PARTS
        .iter()
        .filter(|part| part.is_named_in(&files))
        .map(|part| part.name)
        .collect();
    let globals: Vec<&str> = GLOBALS
        .iter()
        .filter(|(_, mark)| files.iter().any(|(_, content)| has_word(content, mark)))
        .map(|(module, _)| *module)
        .collect();
    if files.iter().any(|(_, content)| names_fs(content)) {
        modules::keep_files();
    }
    memory::clear_freed(true);
    modules::have(files)?;
    IS_STARTING.set(true);
    let made = interpreter
        .context
        .with(|ctx| prepare(&ctx, &wanted, &globals).and_then(|()| evaluate(&ctx, &main)));
    IS_STARTING.set(false);
    modules::forget_what_was_loaded();
    memory::clear_freed(false);
    files::close();
    made?;
    interpreter
        .allocated
        .set(usize::try_from(interpreter.runtime.memory_usage().malloc_size).unwrap_or(0));
    make_room();
    make_lasting();
    memory::begin_request();
    Ok(())
}

impl Part {
    fn is_named_in(&self, files: &[(String, Vec<u8>)]) -> bool {
        let has_one = |content: &[u8]| {
            let mut marks = self.marks.iter();
            marks.any(|mark| memmem::find(content, mark.as_bytes()).is_some())
        };
        files.iter().any(|(_, content)| has_one(content))
    }
}

/// Returns whether a text contains these characters at the beginning of a word.
fn has_word(content: &[u8], word: &str) -> bool {
    memmem::find_iter(content, word.as_bytes()).any(|at| {
        let before = at.checked_sub(1).and_then(|before| content.get(before));
        !before.is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$'))
    })
}

/// Returns whether a text may load `node:fs`.
fn names_fs(content: &[u8]) -> bool {
    let mut marks = FILE_MARKS.iter();
    marks.any(|mark| memmem::find(content, mark.as_bytes()).is_some())
}

/// Makes the parts of these names, and evaluates these modules of Node.js.
fn prepare(ctx: &Ctx<'_>, parts: &[&str], modules: &[&str]) -> Result<(), Error> {
    for part in parts {
        let hook = interpreter().hooks.prepare.get(ctx);
        let prepared = hook.and_then(|hook| hook.call::<_, ()>((*part,)));
        prepared.map_err(|error| script_error::of(ctx, error))?;
    }
    for module in modules {
        builtins::exports(ctx, module).map_err(|error| script_error::of(ctx, error))?;
    }
    Ok(())
}

fn evaluate(ctx: &Ctx<'_>, main: &str) -> Result<(), Error> {
    let told = |error| script_error::of(ctx, error);
    let hooks = &interpreter().hooks;
    let configured = hooks
        .configure
        .get(ctx)
        .and_then(|hook| hook.call::<_, ()>((settings::all(ctx)?,)));
    configured.map_err(told)?;
    let namespace = if modules::kind_of(main) == modules::Kind::CommonJs {
        let exports = commonjs::main_exports(ctx, main).map_err(told)?;
        event_loop::run(ctx, || true);
        exports
    } else {
        evaluate_module(ctx, main)?
    };
    if let Some(error) = REJECTION.take() {
        return Err(error);
    }
    let adopted = hooks
        .adopt
        .get(ctx)
        .and_then(|hook| hook.call((namespace,)));
    let missing: Option<String> = adopted.map_err(told)?;
    missing.map_or(Ok(()), |why| Err(script_error::at(main, &why)))
}

/// Evaluates an ECMAScript module, which may wait at its top level. Returns its namespace.
fn evaluate_module<'js>(ctx: &Ctx<'js>, main: &str) -> Result<Object<'js>, Error> {
    let told = |error| script_error::of(ctx, error);
    let module = modules::load(ctx, main, None).map_err(told)?;
    let (module, done) = Module::eval(module).map_err(told)?;
    event_loop::run(ctx, || {
        done.state() != rquickjs::promise::PromiseState::Pending
    });
    match done.result::<Value>() {
        Some(Ok(_)) => module.namespace().map_err(told),
        Some(Err(error)) => {
            event_loop::forget_rejections();
            Err(told(error))
        }
        None => {
            let why = "its top level waits for what never comes";
            let rejection = REJECTION.take();
            Err(rejection.unwrap_or_else(|| script_error::at(main, why)))
        }
    }
}

/// Returns the object by which a module of `node/` uses the engine.
pub(crate) fn node_host<'js>(ctx: &Ctx<'js>, name: &str) -> rquickjs::Result<Object<'js>> {
    interpreter().hooks.node_host.get(ctx)?.call((name,))
}

/// Answers the request.
pub(crate) fn handle(request: IncomingRequest, out: ResponseOutparam) {
    let interpreter = interpreter();
    random::reseed();
    event_loop::start_clock();
    let threshold = interpreter.allocated.get() + interpreter.allocated.get() / 2 + UNCOLLECTED;
    interpreter.runtime.set_gc_threshold(threshold);
    let method = exchange::method(&request);
    exchange::begin(Exchange::new(request, out));
    interpreter.context.with(|ctx| {
        native::leave_async_context(&ctx);
        let dispatched = interpreter.hooks.dispatch.get(&ctx);
        let dispatched = dispatched.and_then(|hook| hook.call::<_, ()>((method,)));
        if let Err(error) = dispatched {
            // Only built-in code could have thrown this, or memory ran out.
            exchange::fail(&CaughtError::from_error(&ctx, error).to_string());
        }
        event_loop::run(&ctx, exchange::has_ended);
    });
    if exchange::is_unanswered() {
        let why =
            "the handler's promise never settles: there is nothing left that it could wait for";
        eprintln!("Uncaught {why}");
        exchange::fail(why);
    }
    outbound::end();
    exchange::end();
}

/// Calls the next timer that is due; see `web/timers.js`.
pub(crate) fn run_timer(ctx: &Ctx<'_>) -> f64 {
    let called = interpreter().hooks.run_timer.get(ctx);
    called.and_then(|hook| hook.call(())).unwrap_or(-1.0)
}

/// Reports a rejection that has no handler. While [`init`] runs the script, the first one becomes
/// the error of the deployment.
pub(crate) fn unhandled<'js>(ctx: &Ctx<'js>, promise: Value<'js>, reason: Value<'js>) {
    let hook = interpreter().hooks.unhandled.get(ctx);
    let values = (promise, reason.clone(), IS_STARTING.get());
    // If even the report fails, there is no way to report that.
    let is_failure = hook.and_then(|hook| hook.call::<_, bool>(values));
    if is_failure.unwrap_or(false) && REJECTION.with_borrow(Option::is_none) {
        REJECTION.set(Some(script_error::of(ctx, ctx.throw(reason))));
    }
}

/// Returns what the module `faasw` exports.
pub(crate) fn api<'js>(ctx: &Ctx<'js>) -> rquickjs::Result<Object<'js>> {
    interpreter().hooks.api.get(ctx)?.call(())
}

/// Returns an error's description.
pub(crate) fn describe<'js>(ctx: &Ctx<'js>, error: Value<'js>) -> Option<String> {
    interpreter()
        .hooks
        .describe
        .get(ctx)
        .and_then(|hook| hook.call((error,)))
        .ok()
}

/// Returns a stack without the frames of built-in code.
pub(crate) fn frames(ctx: &Ctx<'_>, stack: String) -> Option<String> {
    interpreter()
        .hooks
        .frames
        .get(ctx)
        .and_then(|hook| hook.call((stack,)))
        .ok()
}
