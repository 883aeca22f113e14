"""Forms with files: `multipart/form-data` (RFC 7578), as browsers and HTTP clients send it."""

import io
import re
from urllib.parse import unquote

# Limits that keep a small body from costing much memory.
PARTS = 1_000
_HEAD = 8 * 1024
# RFC 2046, section 5.1.1.
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]")

_PARAMETER = re.compile(r';\s*([\w!#$&+.^`|~*-]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;"]*)\s*')


class File:
    """A file of a form."""

    def __init__(self, filename: str, content_type: str, content: memoryview):
        self.filename = filename
        self.content_type = content_type
        self._content = content
        self._file = None

    @property
    def bytes(self) -> bytes:
        """The whole content."""
        return bytes(self._content)

    @property
    def text(self) -> str:
        """The whole content, which must be UTF-8."""
        return str(self._content, "utf-8")

    @property
    def file(self) -> io.BytesIO:
        """The content as a file for reading, from its beginning at the first use."""
        if self._file is None:
            self._file = io.BytesIO(self._content)
        return self._file

    def __len__(self) -> int:
        return len(self._content)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<File {self.filename!r}, {len(self)} bytes>"


def read(content_type: str, body: bytes) -> list[tuple[str, "str | File"]]:
    """Returns the names and values of a form. Raises ValueError if it is malformed."""
    kind, parameters = _parameters(content_type)
    if kind.lower() != "multipart/form-data":
        raise ValueError(f"a form cannot be {kind}")
    boundary = parameters.get("boundary", "")
    if not _BOUNDARY.fullmatch(boundary):
        raise ValueError("the form's content-type has no valid boundary")
    content = memoryview(body)
    fields = []
    for start, end in _parts(body, b"--" + boundary.encode()):
        fields.append(_field(body, content, start, end))
    return fields


def _parts(body, delimiter):
    """Where the parts are, between the delimiters."""
    at = 0 if body.startswith(delimiter) else -1
    start = None
    delimiter_line = b"\r\n" + delimiter
    if at < 0 and (at := body.find(delimiter_line)) >= 0:
        # Text in front of the first part is no part.
        at += 2
    if at < 0:
        raise ValueError("the form does not begin with its boundary")
    # Each part ends at one; lines that only begin like one cost time, too.
    candidates = 0
    while True:
        if (candidates := candidates + 1) > PARTS + 1:
            raise ValueError(f"a form may have at most {PARTS} parts, or lines like its boundary")
        behind = at + len(delimiter)
        if body.startswith(b"--", behind):
            if start is not None:
                yield start, at - 2
            return
        line_end = body.find(b"\r\n", behind, behind + _HEAD)
        # Spaces may follow a boundary; other text makes it the content of a part.
        if line_end >= 0 and not body[behind:line_end].strip(b" \t"):
            if start is not None:
                yield start, at - 2
            start = line_end + 2
        elif start is None:
            raise ValueError("the form's first boundary is malformed")
        # The line end of an empty part is that of its boundary.
        search = start - 2 if behind < start else behind
        if (at := body.find(delimiter_line, search)) < 0:
            raise ValueError("the form ends before its last boundary")
        at += 2


def _field(body, content, start, end):
    head_end = body.find(b"\r\n\r\n", start, min(start + _HEAD, end + 2))
    if head_end < 0:
        raise ValueError(f"a part of the form has no end of its head within {_HEAD} bytes")
    kind, name, filename = "", None, None
    for line in body[start:head_end].decode().split("\r\n"):
        field, colon, value = line.partition(":")
        field = field.strip().lower()
        if not colon:
            raise ValueError("a part of the form has a malformed header field")
        if field == "content-disposition":
            disposition, parameters = _parameters(value.strip())
            if disposition.lower() != "form-data":
                raise ValueError(f"a part of the form is {disposition!r}, not form-data")
            name, filename = parameters.get("name"), parameters.get("filename")
        elif field == "content-type":
            kind = value.strip()
        elif field == "content-transfer-encoding" and value.strip().lower() not in _PLAIN:
            raise ValueError(f"a part of the form has the encoding {value.strip()}")
    if name is None:
        raise ValueError("a part of the form has no name")
    content = content[min(head_end + 4, end) : end]
    if filename is None:
        return name, str(content, "utf-8")
    return name, File(filename, kind or "application/octet-stream", content)


_PLAIN = ("7bit", "8bit", "binary")


def _parameters(text):
    value, semicolon, rest = text.partition(";")
    rest = semicolon + rest
    parameters = {}
    at = 0
    while at < len(rest.rstrip("; \t")):
        found = _PARAMETER.match(rest, at)
        if found is None:
            raise ValueError("a header field of the form is malformed")
        name, one = found.group(1).lower(), found.group(2)
        if name in parameters:
            raise ValueError(f"a header field of the form has two values of {name}")
        if one.startswith('"'):
            # Browsers escape by `%`, older clients by a backslash (HTML, section 4.10.21.8).
            one = re.sub(r'\\(["\\])', r"\1", one[1:-1])
            one = re.sub("%(22|0[aAdD])", lambda at: chr(int(at.group(1), 16)), one)
        if name == "filename*":
            encoding, _, one = one.partition("'")
            if encoding.lower() != "utf-8":
                raise ValueError("a name in a form is not in UTF-8")
            one = unquote(one.partition("'")[2], errors="strict")
        parameters[name] = one
        at = found.end()
    # `filename*` has the name in full where `filename` is for older servers (RFC 6266,
    # section 4.3).
    if (filename := parameters.pop("filename*", None)) is not None:
        parameters["filename"] = filename
    return value.strip(), parameters
