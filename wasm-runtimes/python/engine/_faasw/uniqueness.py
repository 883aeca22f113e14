"""Nothing random is drawn twice, though the interpreter was frozen.

What a fork would have in common with others is made anew when it begins: the generator of
`random`, and what `uuid` and `tempfile` keep. `os.urandom`, and so `secrets` and `uuid4`, ask the
node each time.
"""

import random
import sys

from wit_world.imports import fresh


_seed = random.seed


def seed() -> None:
    """Whoever draws from `random` from now on draws what nobody else does."""
    low, *others = fresh.seed()
    for part in others:
        low = low << 64 | part
    _seed(low)


def begin_script() -> None:
    """What is done before a script's own code runs."""
    random.seed = _seed


def begin() -> None:
    """What each fork does first."""
    loaded = sys.modules
    if "random" in loaded:
        seed()
    if (uuid := loaded.get("uuid")) is not None:
        uuid._node = uuid._last_timestamp = uuid._last_timestamp_v7 = None
    if (tempfile := loaded.get("tempfile")) is not None:
        tempfile._name_sequence = None


def look_for_others() -> None:
    """Fails where a module of the library has `random` that a script would find unseeded."""
    for name, module in sys.modules.items():
        if name not in (__name__, "random", "tempfile", "uuid"):
            for value in vars(module).values():
                if value is random or type(getattr(value, "__self__", None)) is random.Random:
                    raise RuntimeError(f"{name} has the generator of random")


# Seeding writes to several pages, so it is done where it matters: once a script has `random`, at
# the start of each request; before that, when a request imports it.
random.__faasw_imported__ = seed

# componentize-py seeds at the first call of what it made, from what WASI gives; a script would be
# told that it draws before its first request. Ours begins later.
random.seed = lambda: None
