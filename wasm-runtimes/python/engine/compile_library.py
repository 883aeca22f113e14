"""Run while a first component is built: writes the standard library, compiled, where that is built."""

import itertools
import marshal
import os

_OUT = "/0/_faasw/library"
# Ours, and then what else there is.
_ROOTS = ("/0/library", "/python")
# What is of no use here, or cannot be: installers, graphics, terminals, what the tests are.
_LEFT_OUT = frozenset(
    """__phello__ antigravity config-3.14-wasm32-wasi curses ensurepip idlelib lib2to3
    lib-dynload pip pydoc_data site-packages test tests this tkinter turtle turtledemo venv
    __pycache__""".split()
)


def _modules(folder, package):
    for file in sorted(os.listdir(folder)):
        path = f"{folder}/{file}"
        name, extension = os.path.splitext(file)
        if file in _LEFT_OUT or name in _LEFT_OUT:
            continue
        if os.path.isdir(path):
            yield from _modules(path, f"{package}{file}.")
        elif extension == ".py":
            is_package = name == "__init__"
            yield package[:-1] if is_package else package + name, path, is_package


def _compile():
    index, start = {}, 0
    with open(f"{_OUT}.code", "wb") as code:
        for name, path, is_package in itertools.chain(*(_modules(root, "") for root in _ROOTS)):
            if name in index:
                continue
            with open(path, "rb") as file:
                # Without assertions and documentation.
                compiled = compile(file.read(), path, "exec", dont_inherit=True, optimize=2)
            size = code.write(marshal.dumps(compiled))
            index[name] = (start, start + size, is_package)
            start += size
    with open(f"{_OUT}.index", "wb") as file:
        file.write(marshal.dumps(index))


_compile()
