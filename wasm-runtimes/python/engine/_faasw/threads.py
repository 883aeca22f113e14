"""Threads in the only thread that a function has.

A thread runs when it is started, to its end. A timer runs when its time has come and the thread
waits for something, at the latest after the response. Other waits cannot end, because no other
thread can end them: they raise RuntimeError.
"""

import _thread
import asyncio
import contextvars
import heapq
import queue
import threading
import time

from . import phase

_NEVER = (
    "this would wait for ever: a function has one thread, so that no other can end the wait; "
    "a threading.Thread has run to its end when start() returns"
)

# The timers that were started: time, order, timer.
_timers: list[tuple[float, int, threading.Timer]] = []
_order = 0


def _wait(is_over, timeout=None) -> bool:
    """Runs timers until a condition holds or the timeout has passed. Returns the condition."""
    end = None if timeout is None or timeout < 0 else time.monotonic() + timeout
    while not is_over():
        if _timers and (end is None or _timers[0][0] <= end):
            _run_timer()
        elif end is None:
            raise RuntimeError(_NEVER)
        else:
            time.sleep(max(0, end - time.monotonic()))
            return is_over()
    return True


def _run_timer():
    due, _, timer = heapq.heappop(_timers)
    if not timer.finished.is_set():
        time.sleep(max(0, due - time.monotonic()))
        _run(timer, lambda: timer.function(*timer.args, **timer.kwargs))
        timer.finished.set()


def run_timers() -> None:
    """Waits for the timers that a request leaves behind, as a process does when it ends."""
    while _timers:
        if _timers[0][2].daemon:
            heapq.heappop(_timers)
        else:
            _run_timer()


def call_outside_loop(function, /, *args, **kwargs):
    """Calls a function as in a thread of its own: without a running loop and a current task.

    `asyncio.run` and code that refuses to block a loop, such as Django's, then work in it.
    """
    loop = asyncio._get_running_loop()
    if loop is None:
        return function(*args, **kwargs)
    # A callback of the loop has no task. A task can only be exchanged while its loop is running.
    if (task := asyncio.current_task(loop)) is not None:
        asyncio.tasks._swap_current_task(loop, None)
    asyncio._set_running_loop(None)
    try:
        return function(*args, **kwargs)
    finally:
        asyncio._set_running_loop(loop)
        if task is not None:
            asyncio.tasks._swap_current_task(loop, task)


def _run(thread, function):
    """Runs a thread's function as that thread."""
    active = threading._active
    ident = threading.get_ident()
    outer = active.get(ident)
    active[ident] = thread
    context = contextvars.Context() if thread._context is None else thread._context
    try:
        context.run(call_outside_loop, function)
    except BaseException:
        thread._invoke_excepthook(thread)
    finally:
        active[ident] = outer
        thread._os_thread_handle._set_done()


def _begin(thread):
    if not thread._initialized:
        raise RuntimeError("thread.__init__() not called")
    if thread._started.is_set():
        raise RuntimeError("threads can only be started once")
    thread._ident = threading.get_ident()
    # The thread counts as running until its handle is set as done.
    thread._os_thread_handle = threading._make_thread_handle(thread._ident)
    thread._started.set()


def _start(self):
    _begin(self)
    _run(self, self.run)


def _join(self, timeout=None):
    if not self._initialized:
        raise RuntimeError("Thread.__init__() not called")
    if not self._started.is_set():
        raise RuntimeError("cannot join thread before it is started")
    if self is threading.current_thread():
        raise RuntimeError("cannot join current thread")
    timeout = None if timeout is None else max(timeout, 0)
    _wait(self._os_thread_handle.is_done, timeout)


def _start_timer(self):
    global _order
    phase.require_request("a timer")
    if type(self).run is not _RUN_OF_TIMER:
        raise RuntimeError(
            "a timer with a run() of its own needs a second thread, and a function has one"
        )
    _begin(self)
    _order += 1
    heapq.heappush(_timers, (time.monotonic() + self.interval, _order, self))


def _cancel_timer(self):
    self.finished.set()
    if self._started.is_set() and not self._os_thread_handle.is_done():
        _timers[:] = [entry for entry in _timers if entry[2] is not self]
        heapq.heapify(_timers)
        self._os_thread_handle._set_done()


_RUN_OF_TIMER = threading.Timer.run


class Lock:
    """A lock. Waiting for one that is held raises RuntimeError instead of blocking for ever."""

    __slots__ = ("_is_held", "__weakref__")

    def __init__(self):
        self._is_held = False

    def acquire(self, blocking=True, timeout=-1):
        if not blocking and timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        if timeout < 0 and timeout != -1:
            raise ValueError("timeout value must be a non-negative number")
        if self._is_held and not (blocking and _wait(lambda: not self._is_held, timeout)):
            return False
        self._is_held = True
        return True

    def release(self):
        if not self._is_held:
            raise RuntimeError("release unlocked lock")
        self._is_held = False

    def locked(self):
        return self._is_held

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *_):
        self.release()

    def _at_fork_reinit(self):
        self._is_held = False

    acquire_lock, release_lock, locked_lock = acquire, release, locked

    def __repr__(self):
        return f"<{'' if self._is_held else 'un'}locked lock at {id(self):#x}>"


def _wait_for_condition(self, timeout=None):
    if not self._is_owned():
        raise RuntimeError("cannot wait on un-acquired lock")
    waiter = Lock()
    waiter.acquire()
    self._waiters.append(waiter)
    saved = self._release_save()
    is_notified = False
    try:
        timeout = None if timeout is None else max(timeout, 0)
        is_notified = _wait(lambda: not waiter.locked(), timeout)
        return is_notified
    finally:
        self._acquire_restore(saved)
        if not is_notified and waiter in self._waiters:
            self._waiters.remove(waiter)


def _start_new_thread(function, args, kwargs={}, /):
    thread = threading.Thread(target=function, args=args, kwargs=kwargs, daemon=True)
    thread.start()
    return thread.ident


def _without_threads(*_, **__):
    raise RuntimeError("a function has one thread: WebAssembly can start no others here")


def install() -> None:
    """Replaces what needs a second thread."""
    threading.Thread.start, threading.Thread.join = _start, _join
    threading.Timer.start, threading.Timer.cancel = _start_timer, _cancel_timer
    threading.Condition.wait = _wait_for_condition
    threading.Lock = Lock
    queue.SimpleQueue = queue._PySimpleQueue
    _thread.start_new_thread = _start_new_thread
    _thread.start_joinable_thread = threading._start_joinable_thread = _without_threads
