#!/usr/bin/env python3
"""Gives QuickJS's stack a limit on WASI: limit-stack.py QUICKJS_C

QuickJS compares the stack's pointer with a limit wherever it recurses, but not on WASI. There
the pointer that it can see is that of the stack in linear memory, while frames of compiled code
are on another, which nobody sees: where a recursion has much there and little here, its function
is given some more here, so that a script has its RangeError before the other stack ends. How much
was measured by a program for each recursion (tests/fixtures/scripts/deep.js).
"""

import re
import sys

sys.dont_write_bytecode = True
from source import Source

PADS = {
    "json_parse_value": 192,
    "js_json_to_str": 256,
    "js_parse_postfix_expr": 1088,
    "js_parse_assign_expr2": 192,
    "js_parse_unary": 192,
    "js_proxy_has": 256,
    "js_proxy_get": 128,
    "js_proxy_set": 128,
    "js_proxy_getPrototypeOf": 128,
    "js_call_bound_function": 128,
    "JS_OrdinaryIsInstanceOf": 128,
    "JS_FlattenIntoArray": 128,
}

quickjs = Source()
quickjs.replace(
    "#if defined(__wasi__)\n    rt->stack_limit = 0; /* no limit */\n#else\n",
    "#if 0\n#else\n",
)
for name, size in PADS.items():
    heads = re.findall(rf"^[a-z][^;{{}}#\n]*\b{name}\([^;{{}}]*\)\n{{\n", quickjs.text, re.M)
    if len(heads) != 1:
        quickjs.stop(f"{name} is defined {len(heads)} times")
    quickjs.replace(
        heads[0],
        heads[0] + f'    char pad[{size}];\n    __asm__ volatile("" :: "r"(pad) : "memory");\n',
    )
quickjs.write()
