import html
import re


class Filled(str):
    """Text that is HTML already."""


class Template:
    """Fills `{{name}}`, escaped."""

    def __init__(self, text: str):
        self._parts = re.split(r"\{\{\s*(\w+)\s*\}\}", text)

    def fill(self, **values) -> Filled:
        parts = enumerate(self._parts)
        return Filled(
            "".join(_text(values.get(part, "")) if index % 2 else part for index, part in parts)
        )


def _text(value) -> str:
    if isinstance(value, list):
        return "".join(map(_text, value))
    return value if isinstance(value, Filled) else html.escape(str(value))
