#!/usr/bin/env python3
"""Gives QuickJS what CommonJS and `node:async_hooks` need: modules.py QUICKJS_C

- An *open* module is a native module whose exports are known only after it ran. If another module
  imports a name from it, linking adds that name. `faasw_fill_module` sets the exports, and throws
  if a name is missing then.
- `faasw_require_module` loads, links and evaluates a module synchronously, or throws.
- The engine's own functions have no text. QuickJS keeps a copy of each function's text for
  `toString`, and nested functions repeat it, which would be memory of each script that imports
  modules of Node.js.
- Each reaction of a promise runs in the asynchronous context in which it was added. While no
  script sets a context, this costs one comparison for each reaction.
"""

import sys

sys.dont_write_bytecode = True
from source import Source

quickjs = Source()

# Open modules.
quickjs.replace(
    "    JSAtom export_name; /* exported variable name */\n} JSExportEntry;\n",
    """\
    JSAtom export_name; /* exported variable name */
    bool is_demanded; /* an open module exports it because another module imports it */
} JSExportEntry;
""",
)
quickjs.replace(
    "    bool has_tla; /* true if func_obj contains await */\n",
    """\
    bool has_tla; /* true if func_obj contains await */
    bool is_open; /* a native module that can export any name */
    JSValue open_value; /* what has the values of its exports, once it ran */
""",
)
quickjs.replace(
    "    JSResolveEntry *array;\n    int size;\n    int count;\n} JSResolveState;\n",
    "    JSResolveEntry *array;\n    int size;\n    int count;\n    int star_depth;\n"
    "} JSResolveState;\n",
)
quickjs.replace_all(
    r"    s->array = NULL;\n    s->size = 0;\n    s->count = 0;\n",
    "    s->array = NULL;\n    s->size = 0;\n    s->count = 0;\n    s->star_depth = 0;\n",
    2,
)
quickjs.replace(
    """\
    me = find_export_entry(ctx, m, export_name);
    if (me) {
        if (me->export_type == JS_EXPORT_TYPE_LOCAL) {
            /* local export */
""",
    """\
    me = find_export_entry(ctx, m, export_name);
    if (!me && m->is_open && m->func_created && s->star_depth == 0) {
        me = faasw_demand_export(ctx, m, export_name);
        if (!me)
            return JS_RESOLVE_RES_EXCEPTION;
    }
    if (me) {
        if (me->export_type == JS_EXPORT_TYPE_LOCAL) {
            /* local export */
""",
)
quickjs.replace(
    """\
                ret = js_resolve_export1(ctx, &res_m, &res_me, m1,
                                         export_name, s);
""",
    """\
                s->star_depth++;
                ret = js_resolve_export1(ctx, &res_m, &res_me, m1,
                                         export_name, s);
                s->star_depth--;
""",
)
quickjs.replace(
    "static JSResolveResultEnum js_resolve_export1(JSContext *ctx,",
    """\
static JSVarRef *js_create_module_var(JSContext *ctx, bool is_lexical);

/* Sets an export to the property of that name. A property whose getter throws is undefined, as in
   Node.js. Returns -1 if another module needs it and it is missing. */
static int faasw_set_export(JSContext *ctx, JSModuleDef *m, JSExportEntry *me, JSValueConst from,
                            bool is_complete)
{
    JSValue value;
    int has;

    if (me->export_name == JS_ATOM_default) {
        set_value(ctx, me->u.local.var_ref->pvalue, js_dup(from));
        return 0;
    }
    has = JS_IsObject(from) ? JS_HasProperty(ctx, from, me->export_name) : 0;
    if (has < 0) {
        JS_FreeValue(ctx, JS_GetException(ctx));
        has = 0;
    }
    if (!has) {
        char buf1[ATOM_GET_STR_BUF_SIZE];
        char buf2[ATOM_GET_STR_BUF_SIZE];
        if (!me->is_demanded || !is_complete)
            return 0;
        JS_ThrowSyntaxError(ctx, "Could not find export '%s' in module '%s'",
                            JS_AtomGetStr(ctx, buf1, sizeof(buf1), me->export_name),
                            JS_AtomGetStr(ctx, buf2, sizeof(buf2), m->module_name));
        return -1;
    }
    value = JS_GetProperty(ctx, from, me->export_name);
    if (JS_IsException(value)) {
        JS_FreeValue(ctx, JS_GetException(ctx));
        value = JS_UNDEFINED;
    }
    set_value(ctx, me->u.local.var_ref->pvalue, value);
    return 0;
}

static JSExportEntry *faasw_demand_export(JSContext *ctx, JSModuleDef *m, JSAtom name)
{
    JSExportEntry *me;

    me = add_export_entry2(ctx, NULL, m, JS_ATOM_NULL, name, JS_EXPORT_TYPE_LOCAL);
    if (!me)
        return NULL;
    me->is_demanded = true;
    me->u.local.var_ref = js_create_module_var(ctx, false);
    if (!me->u.local.var_ref)
        goto fail;
    if (!JS_IsUndefined(m->open_value) &&
        faasw_set_export(ctx, m, me, m->open_value, true) < 0) {
        free_var_ref(ctx->rt, me->u.local.var_ref);
        goto fail;
    }
    return me;
 fail:
    m->export_entries_count--;
    JS_FreeAtom(ctx, me->export_name);
    return NULL;
}

void faasw_open_module(JSModuleDef *m);
int faasw_fill_module(JSContext *ctx, JSModuleDef *m, JSValueConst from, bool is_complete);

/* Lets a native module export any name that another module imports. */
void faasw_open_module(JSModuleDef *m)
{
    m->is_open = true;
    m->open_value = JS_UNDEFINED;
}

/* Sets the exports of an open module: `default` is the value, the others are its properties. */
int faasw_fill_module(JSContext *ctx, JSModuleDef *m, JSValueConst from, bool is_complete)
{
    int i;

    if (is_complete)
        m->open_value = js_dup(from);
    for (i = 0; i < m->export_entries_count; i++) {
        if (faasw_set_export(ctx, m, &m->export_entries[i], from, is_complete) < 0)
            return -1;
    }
    return 0;
}

static JSResolveResultEnum js_resolve_export1(JSContext *ctx,""",
)

# Synchronous loading.
quickjs.replace(
    "/* Return a promise or an exception in case of memory error. Used by\n   os.Worker() */\n",
    """\
enum { FAASW_READY, FAASW_EVALUATING, FAASW_WAITS };

JSValue faasw_require_module(JSContext *ctx, const char *base, const char *name, int *state);

static int faasw_module_state(JSContext *ctx, JSModuleDef *root)
{
    JSModuleDef **list;
    int count = 0, size = 0, at, i, j, state = FAASW_READY;

    list = NULL;
    if (js_resize_array(ctx, (void **)&list, sizeof(list[0]), &size, 1))
        return -1;
    list[count++] = root;
    for (at = 0; at < count && state == FAASW_READY; at++) {
        JSModuleDef *m = list[at];
        if (m->status == JS_MODULE_STATUS_EVALUATED)
            continue;
        if (m->status == JS_MODULE_STATUS_EVALUATING)
            state = FAASW_EVALUATING;
        else if (m->has_tla || m->status == JS_MODULE_STATUS_EVALUATING_ASYNC)
            state = FAASW_WAITS;
        for (i = 0; i < m->req_module_entries_count && state == FAASW_READY; i++) {
            JSModuleDef *next = m->req_module_entries[i].module;
            for (j = 0; j < count && list[j] != next; j++)
                continue;
            if (j < count)
                continue;
            if (js_resize_array(ctx, (void **)&list, sizeof(list[0]), &size, count + 1)) {
                js_free(ctx, list);
                return -1;
            }
            list[count++] = next;
        }
    }
    js_free(ctx, list);
    return state;
}

/* Returns the namespace of a module, which it evaluates first. Returns undefined, and the reason in
   `state`, if the module is being evaluated or waits at its top level. */
JSValue faasw_require_module(JSContext *ctx, const char *base, const char *name, int *state)
{
    JSModuleDef *m;
    JSValue promise;

    m = js_host_resolve_imported_module(ctx, base, name, JS_UNDEFINED);
    if (!m)
        return JS_EXCEPTION;
    if (js_resolve_module(ctx, m) < 0) {
        js_free_modules(ctx, JS_FREE_MODULE_NOT_RESOLVED);
        return JS_EXCEPTION;
    }
    *state = faasw_module_state(ctx, m);
    if (*state < 0)
        return JS_EXCEPTION;
    if (*state != FAASW_READY)
        return JS_UNDEFINED;
    promise = JS_EvalFunction(ctx, JS_NewModuleValue(ctx, m));
    if (JS_IsException(promise))
        return JS_EXCEPTION;
    if (JS_PromiseState(ctx, promise) == JS_PROMISE_REJECTED) {
        JS_PromiseMarkAsHandled(ctx, promise);
        JS_Throw(ctx, JS_PromiseResult(ctx, promise));
        JS_FreeValue(ctx, promise);
        return JS_EXCEPTION;
    }
    JS_FreeValue(ctx, promise);
    return JS_GetModuleNamespace(ctx, m);
}

/* Return a promise or an exception in case of memory error. Used by
   os.Worker() */
""",
)

# Asynchronous contexts.
quickjs.replace(
    "    JSPromiseHook *promise_hook;\n    void *promise_hook_opaque;\n",
    "    JSValue async_context; /* of what runs now */\n"
    "    JSPromiseHook *promise_hook;\n    void *promise_hook_opaque;\n",
)
quickjs.replace(
    "    init_list_head(&rt->job_list);\n\n    if (JS_InitAtoms(rt))\n",
    "    init_list_head(&rt->job_list);\n    rt->async_context = JS_UNDEFINED;\n\n"
    "    if (JS_InitAtoms(rt))\n",
)
quickjs.replace(
    """\
    JS_FreeValue(ctx, res);
    js_free(ctx, e);
    *pctx = ctx;
    return ret;
""",
    """\
    JS_FreeValue(ctx, res);
    js_free(ctx, e);
    /* A script may have entered a context in this job. */
    if (unlikely(!JS_IsUndefined(rt->async_context)))
        faasw_set_async_context(ctx, JS_UNDEFINED);
    *pctx = ctx;
    return ret;
""",
)
quickjs.replace(
    "/* return 0 if OK, < 0 if exception */\nint JS_EnqueueJob(",
    """\
JSValue faasw_async_context(JSContext *ctx);
void faasw_set_async_context(JSContext *ctx, JSValueConst context);

/* Returns the asynchronous context of what runs now. */
JSValue faasw_async_context(JSContext *ctx)
{
    return js_dup(ctx->rt->async_context);
}

void faasw_set_async_context(JSContext *ctx, JSValueConst context)
{
    JSValue before = ctx->rt->async_context;

    ctx->rt->async_context = js_dup(context);
    JS_FreeValue(ctx, before);
}

static JSValue faasw_call_in_context(JSContext *ctx, JSValueConst this_val, int argc,
                                     JSValueConst *argv, int magic, JSValueConst *func_data)
{
    JSRuntime *rt = ctx->rt;
    JSValue before = rt->async_context, ret;

    rt->async_context = js_dup(func_data[1]);
    ret = JS_Call(ctx, func_data[0], this_val, argc, argv);
    JS_FreeValue(ctx, rt->async_context);
    rt->async_context = before;
    return ret;
}

/* Returns a function that runs in the present asynchronous context. */
static JSValue faasw_bind_context(JSContext *ctx, JSValueConst func)
{
    JSValueConst data[2];

    if (likely(JS_IsUndefined(ctx->rt->async_context)) || JS_IsUndefined(func))
        return js_dup(func);
    data[0] = func;
    data[1] = ctx->rt->async_context;
    return JS_NewCFunctionData(ctx, faasw_call_in_context, 2, 0, 2, data);
}

/* return 0 if OK, < 0 if exception */
int JS_EnqueueJob(""",
)
quickjs.replace(
    "        args[2] = then;\n"
    "        JS_EnqueueJob(ctx, js_promise_resolve_thenable_job, 3, args);\n",
    """\
        JSValue bound = faasw_bind_context(ctx, then);
        if (JS_IsException(bound)) {
            JS_FreeValue(ctx, then);
            goto fail_reject;
        }
        args[2] = bound;
        JS_EnqueueJob(ctx, js_promise_resolve_thenable_job, 3, args);
        JS_FreeValue(ctx, bound);
""",
)
quickjs.replace(
    """\
            handler = JS_UNDEFINED;
        rd->handler = js_dup(handler);
        rd_array[i] = rd;
""",
    """\
            handler = JS_UNDEFINED;
        rd->handler = faasw_bind_context(ctx, handler);
        rd_array[i] = rd;
        if (JS_IsException(rd->handler)) {
            rd->handler = JS_UNDEFINED;
            while (i >= 0)
                promise_reaction_data_free(ctx->rt, rd_array[i--]);
            return -1;
        }
""",
)
# Texts of functions.
quickjs.replace_all(
    r"\n( +)fd->source = js_strndup\(ctx, \(const char \*\)ptr, fd->source_len\);\n"
    r" +if \(!fd->source\)\n +goto fail;\n",
    r"\n\1if (faasw_is_own_text(s))\n\1    fd->source_len = 0;\n"
    r"\1else if (!(fd->source = js_strndup(ctx, (const char *)ptr, fd->source_len)))\n"
    r"\1    goto fail;\n",
    2,
)
quickjs.replace(
    """\
    ctor_fd->source = js_strndup(ctx, (const char *)class_start_ptr, ctor_fd->source_len);
    if (!ctor_fd->source)
        goto fail;
""",
    """\
    ctor_fd->source = NULL;
    if (faasw_is_own_text(s))
        ctor_fd->source_len = 0;
    else {
        const char *start = (const char *)class_start_ptr;
        ctor_fd->source = js_strndup(ctx, start, ctor_fd->source_len);
        if (!ctor_fd->source)
            goto fail;
    }
""",
)
quickjs.replace(
    "static __exception int js_parse_class(JSParseState *s,",
    """\
static bool faasw_is_own_text(JSParseState *s)
{
    return !strncmp(s->filename, "faasw:", 6);
}

static __exception int js_parse_class(JSParseState *s,""",
)
quickjs.write()
