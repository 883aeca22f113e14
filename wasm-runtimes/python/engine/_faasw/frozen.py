"""What makes a fork cheap: that little is written to of what is frozen.

A reference count that changes dirties a page, and each fork pays for that. What lives as long as
the interpreter is made immortal (PEP 683), which nothing in Python can do: `objects` says where
it is, and `freeze.py` writes the counts once the component is built.
"""

import array
import gc
import sys
import types

# What is at work while this is done.
_PASSING = (types.CoroutineType, types.FrameType, types.GeneratorType, types.TracebackType)

# Where `freeze.py` finds them, in two parts, so that the whole is there once: then how many there
# are, and their addresses.
_MARK = (b"\x0e\xa5\xfaobjects ", b"that last\x0e\xa5\xfa")


# Room that a script and its requests are given in one piece: at most so much of it is used by most.
_ROOM = 8 << 20
_kept = ()


def fill_holes() -> None:
    """Has what is allocated from now on lie together, and not wherever something was freed."""
    global _kept
    room = bytes(_ROOM)
    # The C library's allocator takes the smallest hole that fits, and what is new from the end.
    for size in (1 << 16, 1 << 14, 1 << 12, 1 << 11, *range(1024, 31, -16)):
        # An object of bytes has a header and an end.
        length = size - sys.getsizeof(b"") - _CHUNK
        while id(new := bytes(length)) < id(room):
            _kept = (_kept, new)


# What the allocator takes for itself of each piece of memory.
_CHUNK = 4


def objects() -> tuple[bytes, tuple]:
    """The mark, and where all objects are that last; and these, which must be kept."""
    seen = {}
    lasting = []
    waiting = [*gc.get_objects(), *sys.modules.values()]
    ours = {id(seen), id(lasting), id(waiting)}
    while waiting:
        value = waiting.pop()
        if id(value) in seen or id(value) in ours:
            continue
        seen[id(value)] = value
        if not isinstance(value, _PASSING):
            lasting.append(value)
        waiting += gc.get_referents(value)
    addresses = array.array("I", map(id, lasting))
    return b"".join((*_MARK, len(addresses).to_bytes(4, "little"), addresses.tobytes())), tuple(lasting)
