"""What packages do otherwise here, where the way that they have needs what there is not."""


def _at_once(module):
    """anyio runs what blocks in threads, as Starlette does handlers that are not `async`."""

    async def run_sync_in_worker_thread(cls, func, args, abandon_on_cancel=False, limiter=None):
        await cls.checkpoint()
        return func(*args)

    module.AsyncIOBackend.run_sync_in_worker_thread = classmethod(run_sync_in_worker_thread)


OF_MODULES = {"anyio._backends._asyncio": _at_once}
