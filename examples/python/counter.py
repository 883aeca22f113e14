"""Counts the visits of each path in the function's own key-value store.

GET /counts lists the counts; DELETE /NAME forgets one.
"""

import faasw
from faasw import Response


def handler(request):
    store = faasw.kv.open("default")
    page = "visits:" + request.path
    if request.path == "/counts":
        keys = list(store.keys("visits:"))[:100]
        counts = store.get_many(keys).items()
        return {key.removeprefix("visits:"): int(count) for key, count in counts}
    if request.method == "DELETE":
        store.delete(page)
        return Response(status=204)
    return f"visit {store.increment(page)}\n"
