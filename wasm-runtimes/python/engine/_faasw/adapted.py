"""What modules do otherwise here, where the way that they have needs what there is not."""

import os
import sys


def call_outside_loop(function, /, *args, **kwargs):
    # This module is loaded before the library is: `threads` needs asyncio.
    from . import threads

    return threads.call_outside_loop(function, *args, **kwargs)


def _anyio(module):
    """Runs what blocks, as Starlette's handlers that are not `async`, in threads."""

    async def run_sync_in_worker_thread(cls, func, args, abandon_on_cancel=False, limiter=None):
        await cls.checkpoint()
        return call_outside_loop(func, *args)

    module.AsyncIOBackend.run_sync_in_worker_thread = classmethod(run_sync_in_worker_thread)


def _concurrent_futures(module):
    """Has threads that run what they are given: it is run at once, as by a single thread."""
    executor = module.ThreadPoolExecutor
    create = executor.__init__

    def __init__(
        self, max_workers=None, thread_name_prefix="", initializer=None, initargs=(), **kwargs
    ):
        create(self, max_workers, thread_name_prefix, initializer, initargs, **kwargs)
        self._to_initialize = initializer and (initializer, initargs)

    def submit(self, fn, /, *args, **kwargs):
        if self._broken:
            raise module.BrokenThreadPool(self._broken)
        if self._shutdown:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = module._base.Future()
        future.set_running_or_notify_cancel()
        initialize, self._to_initialize = self._to_initialize, None
        if initialize:
            try:
                call_outside_loop(initialize[0], *initialize[1])
            except BaseException:
                module._base.LOGGER.critical("Exception in initializer:", exc_info=True)
                self._broken = "A thread initializer failed, the thread pool is not usable anymore"
                future.set_exception(module.BrokenThreadPool(self._broken))
                return future
        try:
            future.set_result(call_outside_loop(fn, *args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future

    executor._to_initialize = None
    executor.__init__, executor.submit = __init__, submit


def _hashlib(module):
    """Has PBKDF2 of OpenSSL only (RFC 8018, section 5.2)."""
    import hmac

    def pbkdf2_hmac(hash_name, password, salt, iterations, dklen=None):
        if iterations < 1:
            raise ValueError("iteration value must be greater than 0.")
        begun = hmac.new(password, None, hash_name)
        length = begun.digest_size if dklen is None else dklen
        if length < 1:
            raise ValueError("key length must be greater than 0.")
        key, block = b"", 0
        while len(key) < length:
            block += 1
            salted = begun.copy()
            salted.update(bytes(salt) + block.to_bytes(4, "big"))
            last = salted.digest()
            mixed = int.from_bytes(last, "big")
            for _ in range(iterations - 1):
                step = begun.copy()
                step.update(last)
                last = step.digest()
                mixed ^= int.from_bytes(last, "big")
            key += mixed.to_bytes(begun.digest_size, "big")
        return key[:length]

    module.pbkdf2_hmac = pbkdf2_hmac


def _processes(module):
    """Starts processes by ways that there are not."""

    def start(self):
        raise RuntimeError("a function is one process: WebAssembly can start no others")

    module.BaseProcess.start = start


def _sqlite(module):
    """Seeds its generator from a device that there is not, and so always the same."""
    connect = module.connect

    class Connection(module.Connection):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.create_function("random", 0, _random)
            self.create_function("randomblob", 1, lambda size: os.urandom(max(1, size)))

    def connect_here(*args, **kwargs):
        # The sixth may be given by its place.
        if len(args) < 6:
            kwargs.setdefault("factory", Connection)
        return connect(*args, **kwargs)

    connect_here.__name__ = connect_here.__qualname__ = "connect"
    module.Connection, module.connect = Connection, connect_here


def _random():
    return int.from_bytes(os.urandom(8), "big", signed=True)


_OF_MODULES = {
    "anyio._backends._asyncio": _anyio,
    "concurrent.futures.thread": _concurrent_futures,
    "hashlib": _hashlib,
    "multiprocessing.process": _processes,
    "sqlite3.dbapi2": _sqlite,
}


def adapt(module) -> None:
    """What is done when a module has been loaded."""
    if (adapt_it := _OF_MODULES.get(module.__name__)) is not None:
        adapt_it(module)


def adapt_loaded() -> None:
    """The same for those that are there already."""
    for name in _OF_MODULES:
        if name in sys.modules:
            adapt(sys.modules[name])
