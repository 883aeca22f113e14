"""Nothing random is drawn twice, though the interpreter was frozen.

What a fork would have in common with others is made anew when it begins: the generator of
`random`, and what `uuid` and `tempfile` keep. `os.urandom`, and so `secrets` and `uuid4`, ask the
node each time.
"""

import random
import sys
import weakref

from wit_world.imports import fresh

from _faasw import phase


_seed = random.seed
_seed_generator = random.Random.seed

# Generators that top-level code made without a seed, as libraries do when they are imported.
_unseeded = []


def _number() -> int:
    low, *others = fresh.seed()
    for part in others:
        low = low << 64 | part
    return low


def seed() -> None:
    """Seeds the generator of `random` with a number that no other request has."""
    _seed(_number())


def _seed_made(self, a=None, version=2):
    """Replaces `Random.seed`: a generator of top-level code is seeded again in each request."""
    if a is None and not phase.in_request:
        _unseeded.append(weakref.ref(self))
        a = _number()
    _seed_generator(self, a, version)


def begin_script() -> None:
    """Prepares the generators for a script's own code."""
    random.seed = _seed
    _unseeded.clear()


def begin() -> None:
    """What each fork does first."""
    loaded = sys.modules
    if "random" in loaded:
        seed()
    for reference in _unseeded:
        if (generator := reference()) is not None:
            _seed_generator(generator, _number())
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
random.Random.seed = _seed_made
