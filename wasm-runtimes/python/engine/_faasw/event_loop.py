"""asyncio over what WASI can wait for."""

import asyncio
import asyncio.events

from wit_world.imports import monotonic_clock, poll

_NANOSECONDS = 1_000_000_000


class Loop(asyncio.BaseEventLoop):
    """One thread, no sockets: it waits for the clock, and for a request's body."""

    def __init__(self):
        super().__init__()
        self._waiting = {}
        self._unless_stuck = []
        # What `BaseEventLoop` asks for what happened.
        self._selector = self

    async def until(self, pollable) -> None:
        """Until this is ready; it is given back then."""
        future = self.create_future()
        self._waiting[future] = pollable
        try:
            with pollable:
                await future
        finally:
            self._waiting.pop(future, None)

    async def unless_stuck(self, future) -> None:
        """Until this is done, or there is nothing else to wait for."""
        self._unless_stuck.append(future)
        await future

    def select(self, timeout):
        waiting = list(self._waiting.items())
        if timeout is not None and timeout <= 0 and not waiting:
            return ()
        pollables = [pollable for _, pollable in waiting]
        if timeout is not None:
            timer = monotonic_clock.subscribe_duration(max(0, int(timeout * _NANOSECONDS)))
            pollables.append(timer)
        if not pollables and (futures := [at for at in self._unless_stuck if not at.done()]):
            self._unless_stuck.clear()
            return futures
        if not pollables:
            raise RuntimeError("all that is awaited waits for something that never comes")
        ready = poll.poll(pollables)
        return [waiting[index][0] for index in ready if index < len(waiting)]

    def _process_events(self, events):
        for future in events:
            if not future.done():
                future.set_result(None)

    def _write_to_self(self):
        """Nobody else could wake it."""

    def close(self):
        super().close()
        self._waiting.clear()

    def run_in_executor(self, executor, func, *args):
        # There are no threads: it is done at once, which is all that an awaiting caller sees.
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class _Policy(asyncio.events._BaseDefaultEventLoopPolicy):
    _loop_factory = Loop


_loop = None


def the_loop() -> Loop:
    """The loop in which a script's handlers run."""
    global _loop
    if _loop is None:
        _loop = asyncio.new_event_loop()
        asyncio.set_event_loop(_loop)
    return _loop


def run(coroutine):
    """What it gives in the end; the tasks that it began are done then, too."""
    loop = the_loop()
    before = asyncio.all_tasks(loop)
    try:
        return loop.run_until_complete(coroutine)
    finally:
        if begun := asyncio.all_tasks(loop) - before:
            _finish(loop, begun)
        loop.run_until_complete(loop.shutdown_asyncgens())


def _finish(loop, tasks):
    try:
        loop.run_until_complete(asyncio.wait(tasks))
    except RuntimeError:
        # They wait for what never comes.
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.wait(tasks))


asyncio.events._event_loop_policy = _Policy()
