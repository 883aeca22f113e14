"""A page from a template. Templates are taken apart once, when the function is deployed."""

from pathlib import Path

from faasw import Request, Response
from template import Template

PAGE = Template(Path("layout.html").read_text())
ITEM = Template("<li>{{name}}</li>")


def handler(request: Request) -> Response:
    names = request.query.get_all("name")
    page = PAGE.fill(
        title=f"{len(names)} of us" if names else "Nobody",
        items=[ITEM.fill(name=name) for name in names],
    )
    return Response(page, content_type="text/html; charset=utf-8")
