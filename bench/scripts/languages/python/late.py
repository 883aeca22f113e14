"""The handler for faasw that evaluates the script in each request: only the engine is seeded."""

from faasw import Response


def handler(request):
    from work import answer

    content_type, body = answer(request.body)
    return Response(body, content_type=content_type)
