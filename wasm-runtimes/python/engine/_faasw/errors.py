"""What is said of a script's errors: where in the script, not where in this engine."""

import sys
import traceback

from . import files

_ROOT = files.ROOT + "/"
# Where this engine is, and the machinery of imports.
_NOT_THE_SCRIPT_S = ("/0/", "<frozen importlib")
_STDERR = sys.stderr


def _without_engine(stack):
    kept = [frame for frame in stack if not frame.filename.startswith(_NOT_THE_SCRIPT_S)]
    return traceback.StackSummary.from_list(kept)


def _name(error):
    kind = type(error)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _text(error):
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        return text.encode("utf-8", "backslashreplace").decode()
    except BaseException:
        return "<its text cannot be told>"


def of_init(error, entry: str) -> tuple[str, str, int | None, str]:
    """Message, file, line and stack, the innermost call first."""
    frames = _without_engine(traceback.extract_tb(error.__traceback__))
    frames.reverse()
    places = [(frame.filename, frame.lineno) for frame in frames]
    if isinstance(error, SyntaxError):
        places.insert(0, (error.filename or "", error.lineno))
    of_script = [place for place in places if place[0].startswith(_ROOT)]
    file, line = of_script[0] if of_script else (entry, None)
    text = _text(error)
    # What this engine says needs no name.
    is_ours = type(error).__module__.startswith("_faasw.")
    message = text if is_ours else f"{_name(error)}: {text}" if text else _name(error)
    stack = "\n".join(
        f"{frame.name} ({frame.filename.removeprefix(_ROOT)}:{frame.lineno})"
        for frame in frames[:_FRAMES]
    )
    return message, file.removeprefix(_ROOT), line, stack


# Of more calls nobody reads: a recursion's are all the same.
_FRAMES = 50


def tell(error) -> None:
    """To the log: the traceback, as Python writes it, of what led to it, too."""
    try:
        told = traceback.TracebackException.from_exception(error)
        _leave_out_engine(told)
        text = "".join(told.format())
    except BaseException as another:
        text = f"{_name(error)}, which cannot be told: {_name(another)}\n"
    _STDERR.write(text.encode("utf-8", "backslashreplace").decode())


def _leave_out_engine(told):
    if told is not None:
        told.stack = _without_engine(told.stack)
        for other in (told.__cause__, told.__context__, *(told.exceptions or ())):
            _leave_out_engine(other)


def flush() -> None:
    """Has what was printed in the log; a script may have put anything in the place of its streams."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            pass
