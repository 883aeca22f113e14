"""What a script has of this node: requests and responses, secrets, configuration and stores.

    def handler(request):
        return Response("hello")
"""

import json as _json
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from typing import Any
from functools import cached_property as _part
from urllib.parse import parse_qsl, quote, unquote

from _faasw import multipart as _multipart
from _faasw.multipart import File

from . import kv
from ._settings import Config as _Config
from ._settings import Secrets as _Secrets

__all__ = ["File", "Headers", "Request", "Response", "config", "kv", "secrets"]

secrets = _Secrets()
config = _Config()


class _Pairs(Mapping[str, str]):
    """Names with values; a name may have several, of which `[]` and `get` give the first."""

    __slots__ = ("_pairs", "_first")

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()):
        self._pairs = list(pairs)
        # The first value of each name, from the first use on.
        self._first = None

    def _key(self, name: str) -> str:
        return name

    def get_all(self, name: str) -> list[str]:
        """All values of a name, in their order."""
        name = self._key(name)
        return [value for key, value in self._pairs if key == name]

    def __getitem__(self, name: str) -> str:
        try:
            return self._first_values()[self._key(name)]
        except KeyError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._first_values())

    def __len__(self) -> int:
        return len(self._first_values())

    def _first_values(self) -> dict[str, str]:
        if self._first is None:
            first = {}
            for key, value in self._pairs:
                first.setdefault(key, value)
            self._first = first
        return self._first

    def pairs(self) -> list[tuple[str, str]]:
        """All names with their values, in their order."""
        return list(self._pairs)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _Pairs):
            return self._pairs == other._pairs
        return NotImplemented

    __hash__ = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._pairs!r})"


def _text(value) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


class Headers(_Pairs):
    """Header fields. Their names are in lower case, and found in any."""

    __slots__ = ()

    def __init__(self, fields: "Mapping[str, str] | Iterable[tuple[str, str]]" = ()):
        if isinstance(fields, _Pairs):
            fields = fields.pairs()
        elif isinstance(fields, Mapping):
            fields = fields.items()
        super().__init__((name.lower(), _text(value)) for name, value in fields)

    def _key(self, name: str) -> str:
        return name.lower()

    def __setitem__(self, name: str, value: str) -> None:
        self.pop(name)
        self.add(name, value)

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self.pop(name)

    def add(self, name: str, value: str) -> None:
        """Adds a field beside those of its name."""
        self._pairs.append((name.lower(), _text(value)))
        self._first = None

    def setdefault(self, name: str, value: str) -> str:
        """The first value of a name, which becomes this one where there is none."""
        if name not in self:
            self.add(name, value)
        return self[name]

    def pop(self, name: str) -> None:
        """Removes all fields of a name."""
        name = name.lower()
        self._pairs = [pair for pair in self._pairs if pair[0] != name]
        self._first = None


class Request:
    """A request. What is not asked for is not fetched."""

    def __init__(self, incoming):
        self._incoming = incoming
        self._body = None

    # Each is asked for once, when it is used.

    @_part
    def method(self) -> str:
        """The method, such as `GET`."""
        return self._incoming.method()

    @_part
    def target(self) -> str:
        """Path and query as they were sent."""
        return self._incoming.target()

    @_part
    def scheme(self) -> str:
        """`http` or `https`."""
        return self._incoming.scheme()

    @_part
    def host(self) -> str:
        """Host and port that were asked for."""
        return self._incoming.authority()

    @_part
    def url(self) -> str:
        """All of these."""
        return f"{self.scheme}://{self.host}{self.target}"

    @_part
    def base_path(self) -> str:
        """The function's prefix in URLs, such as `/shop`; empty if it has its own host."""
        return self._incoming.prefix()

    @_part
    def path(self) -> str:
        """The path, decoded."""
        return unquote(self.target.partition("?")[0])

    @_part
    def query_string(self) -> str:
        """What is behind `?`, as it was sent."""
        return self.target.partition("?")[2]

    @_part
    def query(self) -> _Pairs:
        """The query's names and values, decoded."""
        return _Pairs(parse_qsl(self.query_string, keep_blank_values=True))

    @_part
    def headers(self) -> Headers:
        """The header fields."""
        fields = self._incoming.fields()
        return Headers((name, value.decode("latin-1")) for name, value in fields)

    def __iter__(self) -> Iterator[bytes]:
        """The body, piece by piece, as it comes."""
        if self._body is not None:
            yield self._body
            return
        while piece := self._incoming.read():
            yield piece

    @property
    def body(self) -> bytes:
        """The whole body."""
        if self._body is None:
            self._body = b"".join(self)
        return self._body

    @property
    def text(self) -> str:
        """The whole body, which must be UTF-8."""
        return self.body.decode()

    def json(self) -> Any:
        """The value that the body is, in JSON."""
        return _json.loads(self.body)

    def form(self) -> "_Pairs":
        """The fields of a form: `application/x-www-form-urlencoded` or `multipart/form-data`.

        The values are text; those of files are `File`. Raises ValueError if the body is malformed
        or has more than 1,000 fields.
        """
        kind = self.headers.get("content-type", "")
        if kind.lower().startswith("multipart/"):
            return _Pairs(_multipart.read(kind, self.body))
        most = _multipart.PARTS
        return _Pairs(parse_qsl(self.text, keep_blank_values=True, max_num_fields=most))

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.target}>"


# What may stand in a URL, and what is encoded already (RFC 3986, section 2).
_OF_URLS = ":/?#[]@!$&'()*+,;=%~"


class Response:
    """A response.

    Its body is text, bytes, nothing, or an iterable of such pieces, which are sent as they come;
    the last may be asynchronous.
    """

    def __init__(
        self,
        body: "str | bytes | None | Iterable[str | bytes] | AsyncIterable[str | bytes]" = None,
        status: int = 200,
        headers: "Mapping[str, str] | Iterable[tuple[str, str]]" = (),
        content_type: str | None = None,
    ):
        self.body = body
        self.status = status
        self.headers = Headers(headers)
        if content_type is not None:
            self.headers["content-type"] = content_type

    @classmethod
    def json(cls, value: Any, status: int = 200, headers=()) -> "Response":
        """A value as JSON."""
        response = cls(_json.dumps(value, ensure_ascii=False), status, headers)
        response.headers.setdefault("content-type", "application/json")
        return response

    @classmethod
    def redirect(cls, location: str, status: int = 302) -> "Response":
        """Sends whoever asked elsewhere."""
        return cls(None, status, {"location": quote(location, safe=_OF_URLS)})

    def __repr__(self) -> str:
        return f"<Response {self.status}>"
