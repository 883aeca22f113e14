"""The handler for faasw."""

from faasw import Response

from work import answer


def handler(request):
    content_type, body = answer(request.body)
    return Response(body, content_type=content_type)
