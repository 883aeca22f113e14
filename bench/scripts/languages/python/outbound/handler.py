"""The handler for faasw."""

from faasw import Response

from work import answer


def handler(request):
    return Response(answer(request.path), content_type="application/json")
