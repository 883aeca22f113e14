#!/usr/bin/env python3
"""Gives QuickJS fast paths for common values: speed.py QUICKJS_C

The profile that chose them is in docs/decisions/0044-speed-of-javascript.md. Each gives the same
result as the code that it precedes, and leaves all other values to that code.
"""

import sys

sys.dont_write_bytecode = True
from source import Source

quickjs = Source()

# JSON.parse: the tokenizer records its position at each step, so blanks are one step.
quickjs.replace(
    """\
    case ' ':
    case '\\t':
        p++;
        s->mark = p;
        goto redo;
    case '/':
        /* JSON does not accept comments */
""",
    """\
    case ' ':
    case '\\t':
        do
            p++;
        while (*p == ' ' || *p == '\\t');
        s->mark = p;
        goto redo;
    case '/':
        /* JSON does not accept comments */
""",
)
# JSON.parse: `strtod` computes with 128-bit numbers, which WebAssembly does not have. A number of
# at most 15 digits is exact, and so are powers of ten up to 10^22: one division rounds correctly.
quickjs.replace(
    "static int json_parse_number(JSParseState *s, const uint8_t **pp)\n{\n",
    """\
/* Returns false if the number has too many digits, or an exponent. */
static bool faasw_short_number(JSValue *value, const uint8_t *p, const uint8_t *end)
{
    static const double powers[] = {
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
    };
    bool is_negative = *p == '-';
    int64_t digits = 0;
    int fraction = 0;
    bool has_point = false;
    double number;

    p += is_negative;
    if (end - p > 16)
        return false;
    for (; p < end; p++) {
        if (*p == '.') {
            has_point = true;
        } else if (is_digit(*p)) {
            digits = digits * 10 + (*p - '0');
            fraction += has_point;
        } else {
            return false;
        }
    }
    if (digits > 999999999999999)
        return false;
    if (!has_point && digits <= INT32_MAX && !(is_negative && digits == 0)) {
        *value = js_int32(is_negative ? -digits : digits);
        return true;
    }
    number = (double)digits / powers[fraction];
    *value = js_float64(is_negative ? -number : number);
    return true;
}

static int json_parse_number(JSParseState *s, const uint8_t **pp)
{
""",
)
quickjs.replace(
    """\
    s->token.val = TOK_NUMBER;
    s->token.u.num.val = js_float64(strtod((const char *)p_start, NULL));
    *pp = p;
    return 0;
}

/* 'c' is the first character. Return JS_ATOM_NULL in case of error */
static JSAtom json_parse_ident""",
    """\
    s->token.val = TOK_NUMBER;
    if (!faasw_short_number(&s->token.u.num.val, p_start, p))
        s->token.u.num.val = js_float64(strtod((const char *)p_start, NULL));
    *pp = p;
    return 0;
}

/* 'c' is the first character. Return JS_ATOM_NULL in case of error */
static JSAtom json_parse_ident""",
)

# JSON.parse: a string without escapes is copied once. The name of a member is its atom's string.
quickjs.replace(
    """\
static int json_parse_string(JSParseState *s, const uint8_t **pp)
{
    const uint8_t *p, *p_next;
    int i;
    uint32_t c;
    StringBuffer b_s, *b = &b_s;

""",
    """\
static int json_parse_string(JSParseState *s, const uint8_t **pp)
{
    const uint8_t *p, *p_next;
    int i;
    uint32_t c;
    StringBuffer b_s, *b = &b_s;

    for (p = *pp; p < s->buf_end && *p != '"' && *p != '\\\\' && *p >= 0x20 && *p < 0x80; p++)
        ;
    if (p < s->buf_end && *p == '"') {
        const char *text = (const char *)*pp;
        JSValue value;
        /* The text ends with a zero, which is never a colon. */
        if (p[1] == ':') {
            JSAtom atom = JS_NewAtomLen(s->ctx, text, p - *pp);
            if (atom == JS_ATOM_NULL)
                return -1;
            value = JS_AtomToString(s->ctx, atom);
            JS_FreeAtom(s->ctx, atom);
        } else {
            value = js_new_string8_len(s->ctx, text, p - *pp);
        }
        if (JS_IsException(value))
            return -1;
        s->token.val = TOK_STRING;
        s->token.u.str.sep = '"';
        s->token.u.str.str = value;
        *pp = p + 1;
        return 0;
    }

""",
)

# New properties of plain objects, and elements behind the last one of an array: for JSON.parse,
# literals, `map` and the results of regular expressions.
quickjs.replace(
    """\
    int ret;
    ret = JS_DefinePropertyValueConst(ctx, this_obj, prop, val, flags);
    JS_FreeValue(ctx, val);
    return ret;
""",
    """\
    int ret;
    if (JS_VALUE_GET_TAG(this_obj) == JS_TAG_OBJECT &&
        (flags & ~JS_PROP_THROW) == JS_PROP_C_W_E) {
        JSObject *p = JS_VALUE_GET_OBJ(this_obj);
        if (p->class_id == JS_CLASS_OBJECT && !p->is_exotic && p->extensible &&
            !find_own_property1(p, prop)) {
            JSProperty *pr = add_property(ctx, p, prop, JS_PROP_C_W_E);
            if (unlikely(!pr)) {
                JS_FreeValue(ctx, val);
                return -1;
            }
            pr->u.value = val;
            return true;
        }
    }
    ret = JS_DefinePropertyValueConst(ctx, this_obj, prop, val, flags);
    JS_FreeValue(ctx, val);
    return ret;
""",
)
quickjs.replace(
    """\
                                JSValue prop, JSValue val, int flags)
{
    JSAtom atom;
    int ret;
    atom = JS_ValueToAtom(ctx, prop);
    JS_FreeValue(ctx, prop);
""",
    """\
                                JSValue prop, JSValue val, int flags)
{
    JSAtom atom;
    int ret;
    if (JS_VALUE_GET_TAG(this_obj) == JS_TAG_OBJECT && JS_VALUE_GET_TAG(prop) == JS_TAG_INT &&
        (flags & ~JS_PROP_THROW) == JS_PROP_C_W_E) {
        JSObject *p = JS_VALUE_GET_OBJ(this_obj);
        if (p->class_id == JS_CLASS_ARRAY && p->fast_array && p->extensible &&
            (uint32_t)JS_VALUE_GET_INT(prop) == p->u.array.count)
            return add_fast_array_element(ctx, p, val, flags);
    }
    atom = JS_ValueToAtom(ctx, prop);
    JS_FreeValue(ctx, prop);
""",
)

# JSON.stringify: characters that need no escape are copied together.
quickjs.replace(
    """\
    if (string_buffer_putc8(b, '\\"'))
        goto fail;
    for(i = 0; i < p->len; ) {
        c = string_getc(p, &i);
        switch(c) {
        case '\\t':
            c = 't';
""",
    """\
    if (string_buffer_putc8(b, '\\"'))
        goto fail;
    for(i = 0; i < p->len; ) {
        if (!p->is_wide_char) {
            const uint8_t *text = str8(p);
            int start = i;
            while (i < p->len && text[i] >= 32 && text[i] != '\\"' && text[i] != '\\\\')
                i++;
            if (string_buffer_write8(b, text + start, i - start))
                goto fail;
            if (i == p->len)
                break;
        }
        c = string_getc(p, &i);
        switch(c) {
        case '\\t':
            c = 't';
""",
)

# toUpperCase and toLowerCase of ASCII.
quickjs.replace(
    """\
    p = JS_VALUE_GET_STRING(val);
    if (p->len == 0)
        return val;
    if (string_buffer_init(ctx, b, p->len))
        goto fail;
    for(i = 0; i < p->len;) {
        c = string_getc(p, &i);
        if (c == 0x3a3""",
    """\
    p = JS_VALUE_GET_STRING(val);
    if (p->len == 0)
        return val;
    if (!p->is_wide_char) {
        uint8_t all = 0;
        for (i = 0; i < p->len; i++)
            all |= str8(p)[i];
        if (all < 0x80) {
            uint8_t first = to_lower ? 'A' : 'a';
            JSString *converted = js_alloc_string(ctx, p->len, 0);
            if (!converted) {
                JS_FreeValue(ctx, val);
                return JS_EXCEPTION;
            }
            for (i = 0; i < p->len; i++) {
                uint8_t byte = str8(p)[i];
                bool changes = (uint8_t)(byte - first) < 26;
                str8(converted)[i] = byte ^ (changes << 5);
            }
            str8(converted)[p->len] = '\\0';
            JS_FreeValue(ctx, val);
            return JS_MKPTR(JS_TAG_STRING, converted);
        }
    }
    if (string_buffer_init(ctx, b, p->len))
        goto fail;
    for(i = 0; i < p->len;) {
        c = string_getc(p, &i);
        if (c == 0x3a3""",
)

# Regular expressions: `replace`, `matchAll` and `split` read `flags`, which calls eight getters.
FLAGS = {
    "hasIndices": "INDICES",
    "global": "GLOBAL",
    "ignoreCase": "IGNORECASE",
    "multiline": "MULTILINE",
    "dotAll": "DOTALL",
    "unicode": "UNICODE",
    "unicodeSets": "UNICODE_SETS",
    "sticky": "STICKY",
}
quickjs.replace(
    "static JSValue js_regexp_get_flags(JSContext *ctx, JSValueConst this_val)\n{\n",
    """\
/* The names of the flags. An engine has one runtime. */
static JSAtom faasw_flag_names[%d];

/* Returns whether an object has a flag, or -1 after an exception. Calls no getter if it is a
   regular expression whose getter is the original one. */
static int faasw_regexp_flag(JSContext *ctx, JSValueConst of, int name, int mask)
{
    JSObject *p = JS_VALUE_GET_OBJ(of), *getter;
    JSAtom atom = faasw_flag_names[name];
    JSShapeProperty *prs;
    JSProperty *pr;

    /* Its only own property is lastIndex. */
    if (p->class_id == JS_CLASS_REGEXP && p->shape->prop_count == 1 && p->shape->proto) {
        prs = find_own_property(&pr, p->shape->proto, atom);
        if (prs && (prs->flags & JS_PROP_TMASK) == JS_PROP_GETSET) {
            getter = pr->u.getset.getter;
            if (getter && getter->class_id == JS_CLASS_C_FUNCTION &&
                getter->u.cfunc.c_function.getter_magic == js_regexp_get_flag &&
                getter->u.cfunc.magic == mask)
                return (lre_get_flags(str8(p->u.regexp.bytecode)) & mask) != 0;
        }
    }
    return JS_ToBoolFree(ctx, JS_GetProperty(ctx, of, atom));
}

static JSValue js_regexp_get_flags(JSContext *ctx, JSValueConst this_val)
{
"""
    % len(FLAGS),
)
for number, (name, mask) in enumerate(FLAGS.items()):
    in_source = (
        f"JS_GetProperty(ctx, this_val, JS_ATOM_{name})"
        if name in ("global", "unicode")
        else f'JS_GetPropertyStr(ctx, this_val, "{name}")'
    )
    quickjs.replace(
        f"    res = JS_ToBoolFree(ctx, {in_source});\n",
        f"    res = faasw_regexp_flag(ctx, this_val, {number}, LRE_FLAG_{mask});\n",
    )
quickjs.replace(
    """\
int JS_AddIntrinsicRegExp(JSContext *ctx)
{
    JSValue proto, obj;
""",
    """\
int JS_AddIntrinsicRegExp(JSContext *ctx)
{
    static const char *const flags[] = { %s };
    JSValue proto, obj;

    for (int i = 0; i < countof(flags); i++)
        faasw_flag_names[i] = JS_NewAtom(ctx, flags[i]);
"""
    % ", ".join(f'"{name}"' for name in FLAGS),
)
quickjs.write()
