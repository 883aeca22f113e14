"""Key-value stores: `faasw.kv.open("default")` opens the function's own.

Other stores must be granted by the operator. Keys are text, values are bytes; text is stored as
UTF-8. A store can be used only while a request is answered.
"""

import json as _json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from componentize_py_types import Err as _Err
from wit_world.imports import atomics as _atomics
from wit_world.imports import batch as _batch
from wit_world.imports import wasi_keyvalue_store as _stores

from _faasw import phase as _phase

__all__ = ["AccessDenied", "NoSuchStore", "Store", "StoreError", "open"]


class StoreError(Exception):
    """A store has refused an operation, or failed in it."""


class NoSuchStore(StoreError):
    """No store can have this name."""


class AccessDenied(StoreError):
    """The store is not granted to this function."""


def open(name: str = "default") -> "Store":
    """Returns the store of this name.

    Raises AccessDenied if the function has no grant for it.
    """
    _phase.require_request(f"the key-value store {name!r}")
    return Store(name, _call(name, _stores.open, _key(name)))


class Store:
    """A key-value store. `open` returns it."""

    __slots__ = ("name", "_bucket")

    def __init__(self, name: str, bucket):
        self.name = name
        self._bucket = bucket

    def get(self, key: str, default: Any = None) -> bytes | Any:
        """Returns the value of a key, or `default` if there is none."""
        value = self._call(self._bucket.get, _key(key))
        return default if value is None else value

    def get_text(self, key: str, default: Any = None) -> str | Any:
        """Returns the value of a key as text."""
        value = self.get(key)
        return default if value is None else value.decode()

    def get_json(self, key: str, default: Any = None) -> Any:
        """Returns the value that a key's JSON describes."""
        value = self.get(key)
        return default if value is None else _json.loads(value)

    def set(self, key: str, value: bytes | str) -> None:
        """Sets the value of a key."""
        self._call(self._bucket.set, _key(key), _bytes(value))

    def set_json(self, key: str, value: Any) -> None:
        """Sets the value of a key to JSON."""
        self.set(key, _json.dumps(value, ensure_ascii=False))

    def delete(self, key: str) -> None:
        """Removes a key if it exists."""
        self._call(self._bucket.delete, _key(key))

    def exists(self, key: str) -> bool:
        """Returns whether a key has a value."""
        return self._call(self._bucket.exists, _key(key))

    def keys(self, prefix: str = "") -> Iterator[str]:
        """Iterates over the keys that begin with `prefix`, in the order of their bytes."""
        cursor = None
        start = _key(prefix).encode()
        if prefix:
            # A page begins behind its cursor.
            if self.exists(prefix):
                yield prefix
            cursor = prefix
        while True:
            page = self._call(self._bucket.list_keys, cursor)
            for key in page.keys:
                if key.startswith(prefix):
                    yield key
                elif key.encode() > start:
                    return
            cursor = page.cursor
            if cursor is None:
                return

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Returns the values of those keys that have one, all as they were at one moment."""
        keys = [_key(key) for key in keys]
        pairs = self._call(_batch.get_many, self._bucket, keys)
        return {key: value for key, value in pairs if value is not None}

    def set_many(self, pairs: Mapping[str, bytes | str]) -> None:
        """Sets several values, all or none of them."""
        pairs = [(_key(key), _bytes(value)) for key, value in pairs.items()]
        self._call(_batch.set_many, self._bucket, pairs)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Removes several keys, all or none of them."""
        self._call(_batch.delete_many, self._bucket, [_key(key) for key in keys])

    def increment(self, key: str, delta: int = 1) -> int:
        """Adds to a number in one step, and returns the sum. A key without a value counts as 0."""
        if not -(1 << 63) <= delta < 1 << 63:
            raise OverflowError("a number of a store has 64 bits")
        return self._call(_atomics.increment, self._bucket, _key(key), delta)

    def compare_and_swap(
        self, key: str, expected: bytes | str | None, value: bytes | str
    ) -> bool:
        """Sets the value of a key if its present value is `expected`; None means no value.

        Returns whether it was set.
        """
        key, value = _key(key), _bytes(value)
        expected = None if expected is None else _bytes(expected)
        cas = self._call(_atomics.Cas.new, self._bucket, key)
        return self._call(cas.current) == expected and self._swap(cas, value)

    def update(self, key: str, change: "Callable[[bytes | None], bytes | str]") -> bytes:
        """Sets the value of a key to what `change` makes of the present one, and returns it.

        `change` is called again if another request has set the key meanwhile.
        """
        while True:
            cas = self._call(_atomics.Cas.new, self._bucket, _key(key))
            value = _bytes(change(self._call(cas.current)))
            if self._swap(cas, value):
                return value

    def _swap(self, cas, value):
        try:
            _atomics.swap(cas, value)
        except _Err as error:
            if isinstance(error.value, _atomics.CasError_CasFailed):
                return False
            raise _error(self.name, error.value.value) from None
        return True

    def _call(self, function, *arguments):
        return _call(self.name, function, *arguments)

    def __repr__(self) -> str:
        return f"<Store {self.name!r}>"


def _call(name, function, *arguments):
    try:
        return function(*arguments)
    except _Err as error:
        raise _error(name, error.value) from None


def _error(name, error):
    if isinstance(error, _stores.Error_AccessDenied):
        return AccessDenied(f"the store {name!r} is not granted: deploy with --kv {name}")
    if isinstance(error, _stores.Error_NoSuchStore):
        return NoSuchStore(f"no store can have the name {name!r}")
    return StoreError(error.value)


def _key(key):
    if not isinstance(key, str):
        raise TypeError(f"keys and names are str, not {type(key).__name__}")
    # Raises UnicodeEncodeError for what is no text.
    key.encode()
    return key


def _bytes(value):
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"a value is bytes or str, not {type(value).__name__}")
