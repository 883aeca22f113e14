"""Handles of WASI are given back when the object that has one goes, and nothing else is done.

componentize-py has a `weakref.finalize` for each, which is kept in a table, is called at exit, too,
and takes longer than most calls. No handle outlives its request here, and none is in a cycle that
matters: this one is an attribute of the object, and goes with it.
"""

import types
import weakref

from wit_world.imports import atomics, error, monotonic_clock, poll, streams, wasi_keyvalue_store
from wit_world.imports import types as http_types


class _Finalizer:
    __slots__ = ("_func", "_args")

    def __init__(self, _, func, *args):
        self._func = func
        self._args = args

    def detach(self):
        func, self._func = self._func, None
        return None, func, self._args, {}

    def __del__(self):
        if self._func is not None:
            self._func(*self._args)


_of_library = weakref.finalize


def install() -> None:
    """Until the engine is built: then componentize-py has taken it."""
    weakref.finalize = _Finalizer
    small = types.SimpleNamespace(finalize=_Finalizer)
    for module in (
        atomics, error, http_types, monotonic_clock, poll, streams, wasi_keyvalue_store
    ):
        module.weakref = small


def restore() -> None:
    """Gives scripts the library's."""
    weakref.finalize = _of_library
