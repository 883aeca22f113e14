"""What faasw runs where each request is to evaluate the script: the engine is seeded, the script is not."""

from faasw import Response


def handler(request):
    from work import answer

    content_type, body = answer(request.body)
    return Response(body, content_type=content_type)
