"""Where modules come from: a script's files, then the library that the engine was built with."""

import importlib.machinery
import importlib.util
import marshal
import sys
from importlib._bootstrap_external import FileLoader

from . import files
from .adapted import adapt
from .library import CODE, INDEX

# What CPython has elsewhere, and not here; the reason is what whoever imports it reads.
_MISSING = {
    "_ctypes": "there are no native libraries in WebAssembly for ctypes to call",
    "_lzma": "this Python is built without lzma",
    "_bz2": "this Python is built without bz2",
    "_multiprocessing": "a function is one process",
    "curses": "a function has no terminal",
    "tkinter": "a function has no screen",
    "turtle": "a function has no screen",
    "termios": "a function has no terminal",
    "mmap": "there is nothing in WebAssembly to map",
    "fcntl": "there are no files to lock",
    "resource": "a function's limits are what it was deployed with",
    "readline": "a function has no terminal",
}

_NATIVE = (".so", ".pyd", ".dylib")


class _ScriptLoader(importlib.machinery.SourceFileLoader):
    """A module of the script; its source is compiled as it is found."""

    def get_code(self, fullname):
        return compile(self.get_data(self.path), self.path, "exec", dont_inherit=True)

    def exec_module(self, module):
        super().exec_module(module)
        adapt(module)


class ScriptFinder:
    """Finds the script's modules, and what is installed beside them."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        name = fullname.rpartition(".")[2]
        portions = []
        for folder in sys.path if path is None else path:
            if not isinstance(folder, str) or (folder := files.within(folder)) is None:
                continue
            base = f"{folder}/{name}"
            if files.is_file(f"{base}/__init__.py"):
                return _spec(fullname, f"{base}/__init__.py", [base])
            if files.is_file(f"{base}.py"):
                return _spec(fullname, f"{base}.py", None)
            if files.is_folder(base):
                portions.append(base)
            elif files.is_folder(folder):
                _refuse_native(fullname, name, folder)
        if not portions:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = portions
        return spec

    @staticmethod
    def find_distributions(*arguments):
        from importlib.metadata import MetadataPathFinder

        return MetadataPathFinder.find_distributions(*arguments)

    @staticmethod
    def invalidate_caches():
        """There is none: files do not change."""


def _spec(fullname, path, locations):
    loader = _ScriptLoader(fullname, path)
    return importlib.util.spec_from_file_location(
        fullname, path, loader=loader, submodule_search_locations=locations
    )


class _Folder:
    """What `pkgutil` asks for the modules that a folder has."""

    def __init__(self, path):
        self._path = files.within(path)
        if self._path is None or not files.is_folder(self._path):
            raise ImportError("it is no folder of the script", path=path)

    def find_spec(self, fullname, target=None):
        return ScriptFinder.find_spec(fullname, [self._path], target)

    def iter_modules(self, prefix=""):
        for name in sorted(files.names(self._path)):
            if name.endswith(".py") and name != "__init__.py":
                yield prefix + name.removesuffix(".py"), False
            elif files.is_file(f"{self._path}/{name}/__init__.py"):
                yield prefix + name, True

    def invalidate_caches(self):
        """There is none."""


def _refuse_native(fullname, name, folder):
    for file in files.names(folder):
        if file.startswith(name + ".") and file.endswith(_NATIVE):
            raise ModuleNotFoundError(
                f"{fullname} is native code ({file}), which runs in no WebAssembly: "
                "its pure Python form is needed",
                name=fullname,
            )


class Library:
    """The standard library: marshalled code, one after the other in one object."""

    def __init__(self, code: bytes, index: dict[str, tuple[int, int, bool]]):
        self._code = code
        self._index = index
        # Modules that were loaded while the engine was built, and are not to be there before
        # they are imported.
        self._loaded = {}

    def set_aside(self, name: str) -> None:
        """Has this module found as if it were new; it is not run again."""
        self._loaded[name] = sys.modules.pop(name)

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in self._index:
            if fullname in _MISSING:
                raise ModuleNotFoundError(f"{fullname}: {_MISSING[fullname]}", name=fullname)
            return None
        is_package = self._index[fullname][2]
        base = "/python/" + fullname.replace(".", "/")
        origin = f"{base}/__init__.py" if is_package else f"{base}.py"
        spec = importlib.machinery.ModuleSpec(
            fullname, self, origin=origin, is_package=is_package
        )
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [base]
        return spec

    def create_module(self, spec):
        return self._loaded.get(spec.name)

    def exec_module(self, module):
        if self._loaded.pop(module.__name__, None) is None:
            exec(self.get_code(module.__name__), module.__dict__)
            adapt(module)
        elif (prepare := getattr(module, "__faasw_imported__", None)) is not None:
            prepare()

    def get_code(self, fullname):
        start, end, _ = self._index[fullname]
        return marshal.loads(memoryview(self._code)[start:end])

    def get_source(self, fullname):
        """None: the library is kept as code alone."""

    def is_package(self, fullname):
        return self._index[fullname][2]

    def invalidate_caches(self):
        """There is none."""


def shadow(loaded: frozenset[str], folder: str) -> None:
    """Has the modules of a folder found that are called like some which are loaded already."""
    for file in files.names(folder):
        name = file.removesuffix(".py")
        is_module = name != file or files.is_file(f"{folder}/{file}/__init__.py")
        if is_module and name in loaded:
            sys.modules.pop(name, None)


def run(name: str, path: str):
    """A script's first module."""
    spec = _spec(name, path, None)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def install() -> Library:
    """Has modules found here before the folders that the engine is built in."""
    library = Library(CODE, INDEX)
    sys.dont_write_bytecode = True
    # Loaders of files that packages make themselves.
    of_system = FileLoader.get_data
    FileLoader.get_data = lambda self, path: (
        of_system(self, path) if files.within(path) is None else files.content(files.within(path))
    )
    # Behind what is built in and frozen.
    sys.meta_path[2:2] = [ScriptFinder, library]
    return library


def forget_folders() -> None:
    """No module is found elsewhere from now on."""
    del sys.meta_path[4:]
    sys.path[:] = ["/python"]
    sys.path_hooks[:] = [_Folder]
    sys.path_importer_cache.clear()
