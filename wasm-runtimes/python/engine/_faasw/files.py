"""A script's own files: readable below `/app`.

What asks for files in Python, `open`, `os.stat` and those beside them, is answered from memory
below the root, and by WASI elsewhere: `/tmp`, and the files that the operator gives. Whatever takes
these functions by name when it is imported (`pathlib`, `glob`, `shutil`) must be imported after
`install`.
"""

import builtins
import errno
import io
import os
import posixpath
import re
import stat
import time

ROOT = "/app"

_files: dict[str, bytes] = {}
_folders: dict[str, dict[str, None]] = {}

# When they were taken, in nanoseconds since 1970: they have changed with each version.
_taken = 0

_READS = re.compile("r|rb|br|rt|tr")
_MODES = {True: stat.S_IFDIR | 0o555, False: stat.S_IFREG | 0o444}


def take(files) -> None:
    """Has these files, by their paths within the script, from now on."""
    global _taken
    _taken = time.time_ns()
    _folders[ROOT] = {}
    for path, content in files:
        path = f"{ROOT}/{path}"
        _files[path] = content
        while True:
            folder, _, name = path.rpartition("/")
            is_known = folder in _folders
            _folders.setdefault(folder, {})[name] = None
            if is_known:
                break
            path = folder


def forget() -> None:
    """Has none any more."""
    _files.clear()
    _folders.clear()


def is_file(path: str) -> bool:
    return path in _files


def is_folder(path: str) -> bool:
    return path in _folders


def content(path: str) -> bytes:
    try:
        return _files[path]
    except KeyError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None


def names(folder: str) -> list[str]:
    """What is in a folder."""
    try:
        return list(_folders[folder])
    except KeyError:
        pass
    error = errno.ENOTDIR if folder in _files else errno.ENOENT
    raise OSError(error, os.strerror(error), folder)


def within(path) -> str | None:
    """The path if it is ours: whole, without dots."""
    try:
        path = os.fsdecode(path)
    except TypeError:
        return None
    if not path:
        return None
    if not path.startswith("/"):
        path = f"{ROOT}/{path}"
    path = posixpath.normpath(path)
    return path if path == ROOT or path.startswith(ROOT + "/") else None


class _File(io.BytesIO):
    mode = "rb"

    def __init__(self, path, content):
        super().__init__(content)
        self.name = path

    def writable(self):
        return False

    def write(self, _):
        raise io.UnsupportedOperation("not writable")

    truncate = writelines = write


class _Entry:
    """What `os.scandir` gives."""

    def __init__(self, folder, name):
        self.name = name
        self.path = posixpath.join(folder, name)

    def __fspath__(self):
        return self.path

    def __repr__(self):
        return f"<DirEntry {self.name!r}>"

    def is_dir(self, *, follow_symlinks=True):
        return is_folder(within(self.path))

    def is_file(self, *, follow_symlinks=True):
        return is_file(within(self.path))

    def is_symlink(self):
        return False

    def is_junction(self):
        return False

    def stat(self, *, follow_symlinks=True):
        return os.stat(self.path)

    def inode(self):
        return self.stat().st_ino


class _Entries:
    def __init__(self, folder, names):
        self._entries = iter([_Entry(folder, name) for name in names])

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._entries)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._entries = iter(())


def _open(path, mode, encoding, errors, newline):
    if not _READS.fullmatch(mode) and not set(mode) & set("wax+"):
        raise ValueError(f"invalid mode: {mode!r}")
    if "b" in mode and encoding is not None:
        raise ValueError("binary mode doesn't take an encoding argument")
    if is_folder(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if set(mode) & set("wax+"):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
    file = _File(path, content(path))
    if "b" in mode:
        return file
    text = io.TextIOWrapper(file, encoding or "utf-8", errors, newline)
    text.mode = mode
    return text


def _stat(path):
    is_dir = is_folder(path)
    size = 0 if is_dir else len(content(path))
    inode = hash(path) & 0x7FFF_FFFF
    seconds, nanoseconds = _taken // 10**9, {"st_mtime_ns": _taken, "st_atime_ns": _taken}
    return os.stat_result(
        (_MODES[is_dir], inode, 0, 1, 0, 0, size, seconds, seconds, seconds), nanoseconds
    )


def _access(path, mode):
    return (is_folder(path) or is_file(path)) and not mode & os.W_OK


# Functions of `os` that change what is at their first path, or at both of their paths.
_CHANGES = ("mkdir", "remove", "rmdir", "truncate", "unlink", "utime")
_CHANGES_OF_TWO = ("link", "rename", "replace", "symlink")


def _refuse_changes(function, paths):
    def refuse(*args, **kwargs):
        for path in args[:paths]:
            if not isinstance(path, int) and (inside := within(path)) is not None:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), inside)
        return function(*args, **kwargs)

    refuse.__name__ = function.__name__
    return refuse


def install() -> None:
    """Answers for what is below the root from now on."""
    of_system = {name: getattr(os, name) for name in ("stat", "lstat", "listdir", "scandir", "access")}
    open_of_system = io.open

    def stat(path, *, dir_fd=None, follow_symlinks=True):
        inside = within(path)
        if inside is None:
            if path == "" or path == b"":
                # The C library would take it for the root.
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return of_system["stat"](path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        return _stat(inside)

    def lstat(path, *, dir_fd=None):
        return stat(path, dir_fd=dir_fd, follow_symlinks=False)

    def listdir(path="."):
        inside = within(path)
        return of_system["listdir"](path) if inside is None else names(inside)

    def scandir(path="."):
        inside = within(path)
        if inside is None:
            return of_system["scandir"](path)
        return _Entries(os.fsdecode(path), names(inside))

    def access(path, mode, **_):
        inside = within(path)
        return of_system["access"](path, mode) if inside is None else _access(inside, mode)

    def open(
        file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None
    ):
        inside = None if opener else within(file)
        if inside is None:
            return open_of_system(file, mode, buffering, encoding, errors, newline, closefd, opener)
        return _open(inside, mode, encoding, errors, newline)

    os.stat = stat
    os.lstat = lstat
    os.listdir, os.scandir, os.access = listdir, scandir, access
    for paths, names_of in ((1, _CHANGES), (2, _CHANGES_OF_TWO)):
        for name in names_of:
            if hasattr(os, name):
                setattr(os, name, _refuse_changes(getattr(os, name), paths))

    def chmod(path, mode, *, dir_fd=None, follow_symlinks=True):
        # WASI has no modes; `shutil.copy` sets them.
        if isinstance(path, int):
            return
        if (inside := within(path)) is not None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), inside)
        stat(path)

    os.chmod = chmod
    os.getcwd = lambda: ROOT
    os.getcwdb = lambda: os.fsencode(ROOT)
    builtins.open = io.open = open
    io.open_code = lambda path: open(path, "rb")
    for name in ("lstat", "listdir", "scandir", "access", "getcwd"):
        getattr(os, name).__name__ = name
