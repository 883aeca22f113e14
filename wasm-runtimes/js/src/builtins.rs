//! The modules that the engine has itself: those of Node.js, which `node/` has.
//!
//! Each is JavaScript that is evaluated when a script first imports it. Until then only its text is
//! there, in the component's read-only data.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    ffi::{CStr, c_char, c_int},
};

use rquickjs::{
    Ctx, Exception, Function, Module, Object, Persistent, Result, Value,
    function::Func,
    module::Declared,
    qjs::{JSContext, JSModuleDef},
};

use crate::{commonjs, interpreter, modules};

thread_local! {
    static EXPORTS: RefCell<BTreeMap<&'static str, Persistent<Value<'static>>>> =
        const { RefCell::new(BTreeMap::new()) };
}

/// Defines [`MODULES`] of names without `node:` and files in `node/`, as build.sh bundled them.
macro_rules! modules {
    ($($name:literal => $file:literal,)*) => {
        /// The name and the text of each module.
        const MODULES: &[(&str, &str)] = &[
            $((concat!("node:", $name), include_str!(concat!("../vendor/node/", $file, ".js"))),)*
        ];
    };
}

modules! {
    "assert" => "assert",
    "assert/strict" => "assert_strict",
    "async_hooks" => "async_hooks",
    "buffer" => "buffer",
    "child_process" => "absent",
    "cluster" => "absent",
    "console" => "small",
    "constants" => "small",
    "crypto" => "crypto",
    "dgram" => "absent",
    "diagnostics_channel" => "diagnostics_channel",
    "dns" => "absent",
    "events" => "events",
    "fs" => "fs",
    "fs/promises" => "fs_promises",
    "http" => "absent",
    "http2" => "absent",
    "https" => "absent",
    "inspector" => "absent",
    "module" => "module",
    "net" => "absent",
    "os" => "os",
    "path" => "path",
    "path/posix" => "path_posix",
    "perf_hooks" => "small",
    "process" => "process",
    "punycode" => "punycode",
    "querystring" => "querystring",
    "readline" => "absent",
    "repl" => "absent",
    "stream" => "stream",
    "stream/consumers" => "stream_consumers",
    "stream/promises" => "stream_promises",
    "stream/web" => "stream_web",
    "string_decoder" => "string_decoder",
    "sys" => "small",
    "timers" => "timers",
    "timers/promises" => "timers_promises",
    "tls" => "absent",
    "tty" => "small",
    "url" => "url",
    "util" => "util",
    "util/types" => "util_types",
    "v8" => "absent",
    "vm" => "absent",
    "worker_threads" => "absent",
    "zlib" => "absent",
}

/// Returns the full name of a module of the engine. For those of Node.js, `node:` may be missing.
pub(crate) fn find(name: &str) -> Option<&'static str> {
    let short = name.strip_prefix("node:").unwrap_or(name);
    let found = MODULES
        .iter()
        .find(|(name, _)| name.strip_prefix("node:") == Some(short));
    found.map(|(name, _)| *name)
}

/// Returns whether that is the full name of a module of the engine.
pub(crate) fn has(name: &str) -> bool {
    MODULES.iter().any(|(other, _)| *other == name)
}

/// Returns the names of all modules of Node.js that the engine has.
pub(crate) fn names() -> Vec<&'static str> {
    MODULES.iter().map(|(name, _)| *name).collect()
}

/// Returns the exports of a module, which is evaluated first.
pub(crate) fn exports<'js>(ctx: &Ctx<'js>, name: &str) -> Result<Value<'js>> {
    let found = find(name).and_then(|name| MODULES.iter().find(|(other, _)| *other == name));
    let Some((name, source)) = found else {
        return Err(Exception::throw_reference(
            ctx,
            &format!("there is no module {name}"),
        ));
    };
    if let Some(exports) = EXPORTS.with_borrow(|all| all.get(name).cloned()) {
        return exports.restore(ctx);
    }
    let wrapped = format!("(function (host, require, module, exports) {{{source}\n}})");
    let run: Function = interpreter::built_in(ctx, &format!("faasw:{name}"), &wrapped)?;
    let module = Object::new(ctx.clone())?;
    let exports = Object::new(ctx.clone())?;
    module.set("exports", exports.clone())?;
    // Two modules may need each other.
    let partial = Persistent::save(ctx, exports.clone().into_value());
    EXPORTS.with_borrow_mut(|all| all.insert(name, partial));
    let require = Func::from(|ctx: Ctx<'js>, name: String| self::exports(&ctx, &name));
    let host = interpreter::node_host(ctx, name)?;
    let done = run.call::<_, ()>((host, require, module.clone(), exports));
    if let Err(error) = done {
        EXPORTS.with_borrow_mut(|all| all.remove(name));
        return Err(error);
    }
    if *name == "node:fs" {
        modules::keep_files();
    }
    let exports: Value = module.get("exports")?;
    let saved = Persistent::save(ctx, exports.clone());
    EXPORTS.with_borrow_mut(|all| all.insert(name, saved));
    Ok(exports)
}

/// Declares the ECMAScript module of that name.
pub(crate) fn declare<'js>(ctx: &Ctx<'js>, name: &str) -> Result<Module<'js, Declared>> {
    // The exports must be known before the module is linked.
    exports(ctx, name)?;
    commonjs::declare_native(ctx, name, make)
}

unsafe extern "C" fn make(ctx: *mut JSContext, name: *const c_char) -> *mut JSModuleDef {
    // SAFETY: QuickJS passes a valid context, and the name as a text that ends with a zero.
    unsafe {
        let text = CStr::from_ptr(name).to_string_lossy();
        let names = std::ptr::NonNull::new(ctx)
            .and_then(|ctx| export_names(&Ctx::from_raw(ctx), &text).ok())
            .unwrap_or_default();
        commonjs::make_native(ctx, name, run, names.iter().map(String::as_str))
    }
}

fn export_names(ctx: &Ctx<'_>, name: &str) -> Result<Vec<String>> {
    let exports = exports(ctx, name)?;
    let Some(object) = exports.as_object() else {
        return Ok(Vec::new());
    };
    let names = object.keys::<String>().collect::<Result<Vec<_>>>()?;
    Ok(names.into_iter().filter(|name| name != "default").collect())
}

unsafe extern "C" fn run(ctx: *mut JSContext, module: *mut JSModuleDef) -> c_int {
    // SAFETY: QuickJS calls this with a valid context and the module that it evaluates.
    unsafe {
        let name = commonjs::name_of(ctx, module);
        commonjs::fill(ctx, module, |ctx| Ok((exports(ctx, &name)?, true)))
    }
}
