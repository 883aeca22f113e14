//! CommonJS modules. `web/commonjs.js` has `require` and the cache of modules; this file compiles
//! modules, and makes each an ECMAScript module for those that import it.

use std::{
    cell::RefCell,
    ffi::{CStr, CString, c_char, c_int},
    ptr,
};

use rquickjs::{
    Array, Ctx, Exception, Function, Module, Object, Persistent, Result, Value,
    function::Func,
    module::Declared,
    qjs::{self, JSContext, JSModuleDef, JSValue},
};

use crate::{builtins, faasw_module, interpreter, modules, source_maps};

/// `require` and what belongs to it. Evaluated at the first CommonJS module.
const SOURCE: &str = include_str!("../web/commonjs.js");

/// The function around a module's text. It adds no line.
const BEFORE: &str = "(function (exports, require, module, __filename, __dirname) {";
const AFTER: &str = "\n})";

thread_local! {
    static HOOKS: RefCell<Option<Persistent<Object<'static>>>> = const { RefCell::new(None) };
}

// Functions that `modules.py` adds to QuickJS.
unsafe extern "C" {
    fn faasw_open_module(module: *mut JSModuleDef);
    fn faasw_fill_module(
        ctx: *mut JSContext,
        module: *mut JSModuleDef,
        from: JSValue,
        is_complete: bool,
    ) -> c_int;
    fn faasw_require_module(
        ctx: *mut JSContext,
        base: *const c_char,
        name: *const c_char,
        state: *mut c_int,
    ) -> JSValue;
}

/// Returns the object that `web/commonjs.js` returns.
pub(crate) fn hooks<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    if let Some(hooks) = HOOKS.with_borrow(Clone::clone) {
        return hooks.restore(ctx);
    }
    let host = Object::new(ctx.clone())?;
    host.set("resolve", Func::from(resolve))?;
    host.set("main", modules::main())?;
    host.set("kind", Func::from(kind))?;
    host.set(
        "isFile",
        Func::from(|path: String| modules::has_file(&path)),
    )?;
    host.set("compile", Func::from(compile))?;
    host.set("value", Func::from(value))?;
    host.set("namespace", Func::from(namespace))?;
    host.set(
        "builtin",
        Func::from(|ctx: Ctx<'js>, name: String| builtins::exports(&ctx, &name)),
    )?;
    let begin: Function = interpreter::built_in(ctx, "faasw:commonjs", SOURCE)?;
    let hooks: Object = begin.call((host,))?;
    HOOKS.set(Some(Persistent::save(ctx, hooks.clone())));
    Ok(hooks)
}

fn resolve(ctx: Ctx<'_>, base: String, name: String) -> Result<String> {
    let why = match modules::resolve(&base, &name) {
        Ok(found) => return Ok(found),
        Err(why) => why,
    };
    let error = Exception::from_message(ctx.clone(), &why)?;
    error.as_object().set("code", "MODULE_NOT_FOUND")?;
    Err(ctx.throw(error.into_value()))
}

fn kind(path: String) -> &'static str {
    if builtins::has(&path) {
        "builtin"
    } else if path == faasw_module::NAME {
        // The loader makes this module, which has no file.
        "esm"
    } else {
        modules::kind_of(&path).name()
    }
}

fn value(ctx: Ctx<'_>, path: String) -> Result<Value<'_>> {
    modules::value_of(&ctx, &path, modules::kind_of(&path))
}

/// Returns the function that a module's text is the body of.
fn compile(ctx: Ctx<'_>, path: String) -> Result<Value<'_>> {
    let text = modules::take_text(&ctx, &path)?;
    source_maps::note(&ctx, &path, &text, BEFORE.len())?;
    let mut source = String::with_capacity(BEFORE.len() + text.len() + AFTER.len() + 1);
    source.push_str(BEFORE);
    if text.starts_with("#!") {
        source.push_str("//");
    }
    source.push_str(&text);
    source.push_str(AFTER);
    let length = source.len();
    let source = CString::new(source)?;
    let name = CString::new(path)?;
    // SAFETY: both texts end with a zero and live until the function returns, which returns a value
    // that this function owns, or the mark of an exception.
    let value = unsafe {
        let value = qjs::JS_Eval(
            ctx.as_raw().as_ptr(),
            source.as_ptr(),
            length as _,
            name.as_ptr(),
            qjs::JS_EVAL_TYPE_GLOBAL as i32,
        );
        Value::from_raw(ctx.clone(), value)
    };
    thrown(value)
}

/// Returns an error if the value is the mark of an exception.
fn thrown(value: Value<'_>) -> Result<Value<'_>> {
    // SAFETY: the value is only compared.
    if unsafe { qjs::JS_IsException(value.as_raw()) } {
        return Err(rquickjs::Error::Exception);
    }
    Ok(value)
}

/// Returns the namespace of an ECMAScript module, after it was evaluated. The second item is the
/// reason if it cannot be evaluated now.
fn namespace<'js>(ctx: Ctx<'js>, base: String, path: String) -> Result<Array<'js>> {
    let base = CString::new(base)?;
    let name = CString::new(format!("{}{path}", modules::RESOLVED))?;
    let mut state = 0;
    // SAFETY: the texts end with a zero. The function returns a value that this function owns.
    let value = unsafe {
        let value = faasw_require_module(
            ctx.as_raw().as_ptr(),
            base.as_ptr(),
            name.as_ptr(),
            &raw mut state,
        );
        Value::from_raw(ctx.clone(), value)
    };
    let value = thrown(value)?;
    let result = Array::new(ctx)?;
    result.set(0, value)?;
    result.set(1, state)?;
    Ok(result)
}

/// Declares an ECMAScript module that exports what a CommonJS module exports. The CommonJS module
/// runs when the other is evaluated.
pub(crate) fn declare<'js>(ctx: &Ctx<'js>, path: &str) -> Result<Module<'js, Declared>> {
    declare_native(ctx, path, make_open)
}

/// Declares a native module of that name.
pub(crate) fn declare_native<'js>(
    ctx: &Ctx<'js>,
    name: &str,
    make: rquickjs::module::ModuleLoadFn,
) -> Result<Module<'js, Declared>> {
    // SAFETY: the function makes a module of that context.
    unsafe { Module::from_load_fn(ctx.clone(), CString::new(name)?.into_bytes(), make) }
}

unsafe extern "C" fn make_open(ctx: *mut JSContext, name: *const c_char) -> *mut JSModuleDef {
    // SAFETY: QuickJS passes the name as a text that ends with a zero.
    let path = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let names = modules::export_names(&path);
    // SAFETY: the context and the name are QuickJS's.
    unsafe {
        let module = make_native(ctx, name, run, names.iter().map(String::as_str));
        if !module.is_null() {
            faasw_open_module(module);
        }
        module
    }
}

/// Makes a native module with the export `default` and others.
///
/// # Safety
///
/// The context is valid, and the name ends with a zero.
pub(crate) unsafe fn make_native<'a>(
    ctx: *mut JSContext,
    name: *const c_char,
    run: unsafe extern "C" fn(*mut JSContext, *mut JSModuleDef) -> c_int,
    names: impl Iterator<Item = &'a str>,
) -> *mut JSModuleDef {
    // SAFETY: the caller keeps the contract.
    unsafe {
        let module = qjs::JS_NewCModule(ctx, name, Some(run));
        if module.is_null() {
            return module;
        }
        for name in std::iter::once("default").chain(names) {
            let Ok(name) = CString::new(name) else {
                continue;
            };
            if qjs::JS_AddModuleExport(ctx, module, name.as_ptr()) < 0 {
                return ptr::null_mut();
            }
        }
        module
    }
}

/// Returns the name of a native module.
///
/// # Safety
///
/// The context and the module are valid.
pub(crate) unsafe fn name_of(ctx: *mut JSContext, module: *mut JSModuleDef) -> String {
    // SAFETY: the caller keeps the contract.
    unsafe {
        let atom = qjs::JS_GetModuleName(ctx, module);
        let text = qjs::JS_AtomToCStringLen(ctx, ptr::null_mut(), atom);
        qjs::JS_FreeAtom(ctx, atom);
        if text.is_null() {
            return String::new();
        }
        let name = CStr::from_ptr(text).to_string_lossy().into_owned();
        qjs::JS_FreeCString(ctx, text);
        name
    }
}

/// Sets the exports of a native module.
///
/// # Safety
///
/// The context and the module are valid.
pub(crate) unsafe fn fill(
    ctx: *mut JSContext,
    module: *mut JSModuleDef,
    run: impl for<'js> FnOnce(&Ctx<'js>) -> Result<(Value<'js>, bool)>,
) -> c_int {
    let Some(raw) = ptr::NonNull::new(ctx) else {
        return -1;
    };
    // SAFETY: the caller keeps the contract.
    let js = unsafe { Ctx::from_raw(raw) };
    match run(&js) {
        // SAFETY: the value lives until the call returns.
        Ok((value, is_complete)) => unsafe {
            faasw_fill_module(ctx, module, value.as_raw(), is_complete)
        },
        Err(rquickjs::Error::Exception) => -1,
        Err(error) => {
            Exception::throw_message(&js, &error.to_string());
            -1
        }
    }
}

unsafe extern "C" fn run(ctx: *mut JSContext, module: *mut JSModuleDef) -> c_int {
    // SAFETY: QuickJS calls this with a valid context and the module that it evaluates.
    unsafe {
        let path = name_of(ctx, module);
        fill(ctx, module, |ctx| {
            let run: Function = hooks(ctx)?.get("run")?;
            let result: Array = run.call((path,))?;
            Ok((result.get(0)?, result.get(1)?))
        })
    }
}

/// Runs the script's first module. Returns an object with its default export, as of an ECMAScript
/// module. Compiled modules have that object themselves.
pub(crate) fn main_exports<'js>(ctx: &Ctx<'js>, path: &str) -> Result<Object<'js>> {
    let run: Function = hooks(ctx)?.get("run")?;
    let result: Array = run.call((path,))?;
    let exports: Value = result.get(0)?;
    if let Some(object) = exports.as_object()
        && object.get::<_, bool>("__esModule").unwrap_or(false)
    {
        return Ok(object.clone());
    }
    let namespace = Object::new(ctx.clone())?;
    namespace.set("default", exports)?;
    Ok(namespace)
}
