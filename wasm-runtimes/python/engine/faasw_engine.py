"""CPython as a language engine: what `wasi:http` and `faasw:engine` call.

This module is run while the component is built, and what it leaves is part of that: the library's
modules that most scripts use are loaded here, so that no script waits for them.
"""

import gc
import sys

from _faasw import files, modules

# Before anything else is imported: what takes functions of `os` by name gets ours, and what is
# compiled from source leaves its garbage in the component.
files.install()
_library = modules.install()

import importlib
import os

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.script import Error
from wit_world.imports import environment

from _faasw import (
    adapted, conversation, errors, frozen, handles, interfaces, outbound, phase, threads, transport,
    uniqueness, warm_up,
)
from _faasw.exchange import Incoming, Outgoing

_LOADED = """
    argparse array asyncio base64 binascii bisect calendar collections.abc configparser contextlib
    contextvars copy csv dataclasses datetime decimal difflib email.message email.parser email.utils
    encodings.ascii encodings.idna encodings.latin_1 enum fnmatch fractions functools gzip hashlib
    concurrent.futures.thread heapq hmac html html.parser http http.client http.cookies importlib.metadata importlib.resources
    importlib.util inspect io ipaddress itertools json linecache logging logging.config math
    mimetypes multiprocessing numbers operator pathlib pickle pkgutil platform pprint queue random re secrets
    select shlex shutil signal socket ssl string struct tempfile textwrap threading time
    traceback types typing unicodedata urllib.parse urllib.request uuid warnings weakref xml.etree.ElementTree
    zipfile zlib zoneinfo
""".split()
_SHADOWED = frozenset(_LOADED)

_answer = None


class Script(exports.Script):
    def init(self, files):
        try:
            _begin(files[0][0])
            _take(files)
            gc.freeze()
        except BaseException as error:
            raise Err(Error(*errors.of_init(error, files[0][0]))) from None
        finally:
            errors.flush()


class IncomingHandler(exports.IncomingHandler):
    def handle(self, request, response_out):
        gc.enable()
        _respond(request, response_out)


def _begin(name):
    """What is a script's, and not the engine's."""
    handles.restore()
    uniqueness.begin_script()
    _library.set_aside("random")
    os.environ.clear()
    os.environ.update(environment.get_environment())
    # Libraries look for their settings there; a microVM has no users.
    os.environ.setdefault("HOME", "/tmp")
    sys.argv = [name, *environment.get_arguments()[1:]]


def _take(given):
    """Runs a script's first file, and has what answers its requests."""
    global _answer
    files.take(given)
    entry = given[0][0]
    path = f"{files.ROOT}/{entry}"
    folder, _, file = path.rpartition("/")
    sys.path[:0] = dict.fromkeys((folder, files.ROOT))
    modules.shadow(_SHADOWED, folder)
    module = modules.run(file.removesuffix(".py"), path)
    if "anyio" in sys.modules:
        # It would be loaded by the first request, and so by all.
        importlib.import_module("anyio._backends._asyncio")
    _answer = interfaces.handler_of(module, _entry(given))


# A file of the bundle that holds the application's name in the first file, as in
# `--entry app:create_app`.
_ENTRY = ".faasw/entry"


def _entry(given):
    for path, content in given:
        if path == _ENTRY:
            return content.decode().strip()
    return None


def _respond(request, response_out):
    incoming, outgoing = Incoming(request), Outgoing(response_out)
    phase.in_request = True
    try:
        uniqueness.begin()
        _answer(incoming, outgoing)
        threads.run_timers()
    except BaseException as error:
        errors.tell(error)
        outgoing.fail("the handler failed")
    finally:
        phase.in_request = False
        outbound.close_all()
        incoming.close()
        errors.flush()


def _prepare():
    """What remains of building: the interpreter as every script finds it."""
    for name in _LOADED:
        importlib.import_module(name)
    adapted.adapt_loaded()
    uniqueness.look_for_others()
    threads.install()
    sys.stdout.reconfigure(line_buffering=True)
    handles.install()
    warm_up.run(_take, _respond)
    modules.forget_folders()
    gc.collect()
    global _lasting
    _lasting = frozen.objects()
    frozen.fill_holes()
    gc.freeze()
    gc.disable()


_prepare()
