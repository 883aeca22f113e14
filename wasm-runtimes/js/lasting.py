#!/usr/bin/env python3
"""Has requests leave alone what was there before them: lasting.py QUICKJS_C

A fork pays for each page that a request writes to, and QuickJS writes to nearly all that it
looks at: it counts references. What `JS_MakeLasting` finds is counted no more, and is never freed;
nor do collections go through it: what it refers to stays. Small blocks are asked for at
`src/memory.rs` first, which has them lie close together whatever their sizes.
"""

import sys

sys.dont_write_bytecode = True
from source import Source

quickjs = Source()

# References to what lasts are not counted. Where QuickJS asks whether there is but one, as before
# it changes what it has in place, there are many.
quickjs.replace_all(r"--JS_REF_COUNT\(([^()]+)\)", r"js_ref_less(\1)", 7)
quickjs.replace_all(r"JS_REF_COUNT\(([^()]+)\)--", r"js_ref_less(\1)", 2)
quickjs.replace_all(r"JS_REF_COUNT\(([^()]+)\)\+\+", r"js_ref_more(\1)", 19)
quickjs.replace(
    "/* bigint */\ntypedef int32_t js_slimb_t;\n",
    """\
/* More references than there is memory for. */
#define JS_LASTING (1 << 30)

static inline void js_ref_more(const void *p) {
    int count = JS_REF_COUNT(p);
    if (likely(count < JS_LASTING))
        JS_REF_COUNT(p) = count + 1;
}

static inline int js_ref_less(const void *p) {
    int count = JS_REF_COUNT(p);
    if (likely(count < JS_LASTING))
        JS_REF_COUNT(p) = --count;
    return count;
}

/* bigint */
typedef int32_t js_slimb_t;
""",
)

quickjs.replace(
    "    struct list_head gc_zero_ref_count_list;\n",
    """\
    struct list_head gc_zero_ref_count_list;
    struct list_head lasting_list; /* what collections do not look at */
""",
)
quickjs.replace(
    "    init_list_head(&rt->gc_zero_ref_count_list);\n    rt->gc_phase",
    """\
    init_list_head(&rt->gc_zero_ref_count_list);
    init_list_head(&rt->lasting_list);
    rt->gc_phase""",
)
quickjs.replace(
    "/* Return false if not an object or if the object has already been\n   freed",
    """\
void JS_MakeLasting(JSContext *ctx);

/* All that is there now lasts. No script may run. */
void JS_MakeLasting(JSContext *ctx)
{
    JSRuntime *rt = ctx->rt;
    struct list_head *el, *first, *last, *before;
    int i;

    list_for_each(el, &rt->gc_obj_list) {
        JSGCObjectHeader *p = list_entry(el, JSGCObjectHeader, link);
        if (JS_GC_TYPE(p) == JS_GC_OBJ_TYPE_SHAPE) {
            JSShape *sh = (JSShape *)p;
            /* What is one object's is changed in place, and would have to be copied. */
            if (!sh->is_hashed || (JS_REF_COUNT(p) == 1 && sh->prop_count > 16))
                continue;
        }
        if (JS_REF_COUNT(p) < JS_LASTING)
            JS_REF_COUNT(p) = JS_LASTING;
    }
    for (i = 0; i < rt->atom_size; i++) {
        JSAtomStruct *p = rt->atom_array[i];
        if (!atom_is_free(p) && JS_REF_COUNT(p) < JS_LASTING)
            JS_REF_COUNT(p) = JS_LASTING;
    }
    if (!list_empty(&rt->gc_obj_list)) {
        first = rt->gc_obj_list.next;
        last = rt->gc_obj_list.prev;
        before = rt->lasting_list.prev;
        before->next = first;
        first->prev = before;
        last->next = &rt->lasting_list;
        rt->lasting_list.prev = last;
        init_list_head(&rt->gc_obj_list);
    }
}

/* Return false if not an object or if the object has already been
   freed""",
)

# Small blocks lie close together.
quickjs.replace(
    "#define JS_ARENA_FREE_NIL          0xffff\n",
    """\
#define JS_ARENA_FREE_NIL          0xffff
/* a small block of src/memory.rs */
#define JS_ARENA_OUTSIDE           0xfffe
extern void *faasw_take(size_t size);
extern void faasw_give(void *block, size_t size);
extern bool faasw_give_up(size_t size);
""",
)
quickjs.replace(
    """\
        block_size = arena_block_sizes[block_size_idx];
        head = &rt->arena_state.free_arena_list[block_size_idx];
""",
    """\
        block_size = arena_block_sizes[block_size_idx];
        b = faasw_take(block_size);
        if (b) {
            b->u.block_idx = JS_ARENA_OUTSIDE;
            b->block_size_idx = block_size_idx;
            return b->user_data;
        }
        head = &rt->arena_state.free_arena_list[block_size_idx];
""",
)
quickjs.replace(
    """\
        unsigned int block_size = arena_block_sizes[block_size_idx];
        JSArena *ar = (JSArena *)((uint8_t *)b -
                                  (size_t)block_size * block_idx -
                                  sizeof(JSArena));
""",
    """\
        unsigned int block_size = arena_block_sizes[block_size_idx];
        JSArena *ar;
        if (block_idx == JS_ARENA_OUTSIDE) {
            faasw_give(b, block_size);
            return;
        }
        if (faasw_give_up(block_size))
            return;
        ar = (JSArena *)((uint8_t *)b -
                         (size_t)block_size * block_idx -
                         sizeof(JSArena));
""",
)
quickjs.write()
