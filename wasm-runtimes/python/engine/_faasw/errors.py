"""What is said of a script's errors: where in the script, not where in this engine."""

import sys
import traceback

from . import files

_ROOT = files.ROOT + "/"
_STDERR = sys.stderr


def _of_script(error):
    """Frames from the script's first on, the outermost first."""
    stack = traceback.extract_tb(error.__traceback__)
    first = next((at for at, frame in enumerate(stack) if frame.filename.startswith(_ROOT)), None)
    return [] if first is None else stack[first:]


def _name(error):
    kind = type(error)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _text(error):
    try:
        return str(error)
    except Exception:
        return "<its text cannot be told>"


def of_init(error, entry: str) -> tuple[str, str, int | None, str]:
    """Message, file, line and stack, the innermost call first."""
    frames = _of_script(error)
    frames.reverse()
    file, line = entry, None
    text = _text(error)
    if isinstance(error, SyntaxError) and error.filename and error.filename.startswith(_ROOT):
        file, line, text = error.filename, error.lineno, error.msg
    else:
        for frame in frames:
            if frame.filename.startswith(_ROOT):
                file, line = frame.filename, frame.lineno
                break
    # What this engine says needs no name.
    is_ours = type(error).__module__.startswith("_faasw.")
    message = text if is_ours else f"{_name(error)}: {text}" if text else _name(error)
    stack = "\n".join(
        f"{frame.name} ({frame.filename.removeprefix(_ROOT)}:{frame.lineno})" for frame in frames
    )
    return message, file.removeprefix(_ROOT), line, stack


def tell(error) -> None:
    """To the log: the traceback, as Python writes it."""
    _trim(error, set())
    try:
        traceback.print_exception(error, file=_STDERR)
    except Exception as another:
        print(f"{_name(error)}, which cannot be told: {_name(another)}", file=_STDERR)


def flush() -> None:
    """Has what was printed in the log; a script may have put anything in the place of its streams."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


def _trim(error, seen):
    """Leaves out this engine's frames before the script's first."""
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        trace = error.__traceback__
        while trace is not None and not trace.tb_frame.f_code.co_filename.startswith(_ROOT):
            trace = trace.tb_next
        if trace is not None:
            error.__traceback__ = trace
        _trim(error.__cause__, seen)
        error = error.__context__
