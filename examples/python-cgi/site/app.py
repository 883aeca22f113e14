"""A WSGI application (PEP 3333) of the standard library alone."""

import html
import json
import os
import re
import sys
from http import HTTPStatus
from http.cookies import SimpleCookie
from pathlib import Path
from string import Template
from urllib.parse import parse_qs

HERE = Path(__file__).parent
JSON = "application/json"
HTML = "text/html; charset=utf-8"

# What one request leaves here the next does not find.
calls = 0


class Refused(Exception):
    """Answered with a status and a reason."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


def page(title, text):
    template = Template((HERE / "page.html").read_text(encoding="utf-8"))
    return HTML, template.substitute(title=html.escape(title), text=html.escape(text))


def body(environ):
    return environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))


def home(environ):
    return page("A site in Python", "each request runs CPython in a microVM of its own")


def greet(environ):
    form = parse_qs(body(environ).decode())
    if "name" not in form:
        raise Refused(HTTPStatus.BAD_REQUEST, "the form needs a name")
    return page("Hello", f"hello, {form['name'][0]}")


def echo_json(environ):
    try:
        return JSON, {"got": json.loads(body(environ))}
    except ValueError as error:
        raise Refused(HTTPStatus.BAD_REQUEST, str(error)) from error


def size(environ):
    return JSON, {"bytes": len(body(environ))}


def database():
    # Some functions have no use for it, and it takes a moment to import.
    import sqlite3

    connection = sqlite3.connect(HERE / "data" / "books.db")
    connection.row_factory = sqlite3.Row
    return connection


def books(environ):
    author = parse_qs(environ["QUERY_STRING"]).get("author", [""])[0]
    found = database().execute(
        "SELECT id, title, author FROM book WHERE author LIKE ? ORDER BY id", [f"%{author}%"]
    )
    return JSON, [dict(book) for book in found]


def book(environ, number):
    found = (
        database().execute("SELECT id, title, author FROM book WHERE id = ?", [number]).fetchone()
    )
    if found is None:
        raise Refused(HTTPStatus.NOT_FOUND, f"there is no book {number}")
    return JSON, dict(found)


def visits(environ):
    """Whatever a request leaves behind is gone with it: each of these is always 1."""
    global calls
    calls += 1
    file = HERE / "data" / "visits"
    with file.open("a") as visits:
        visits.write("x")
    with database() as connection:
        connection.execute("INSERT INTO visit DEFAULT VALUES")
        rows = connection.execute("SELECT count(*) FROM visit").fetchone()[0]
    return JSON, {"global": calls, "file": file.stat().st_size, "database": rows}


def cookie(environ):
    sent = SimpleCookie(environ.get("HTTP_COOKIE", ""))
    count = 1 + int(sent["count"].value) if "count" in sent else 1
    return (
        JSON,
        {"count": count},
        [("Set-Cookie", f"count={count}; Path=/; HttpOnly; SameSite=Lax")],
    )


def about(environ):
    return JSON, {
        "python": sys.version.split()[0],
        "library": json.__file__,
        "path": environ["PATH_INFO"],
        "query": parse_qs(environ["QUERY_STRING"]),
        "script": environ["SCRIPT_NAME"],
        "client": environ["REMOTE_ADDR"],
    }


def fail(environ, how):
    """What failing looks like."""
    match how:
        case "exception":
            raise RuntimeError("nobody catches this")
        case "exit":
            os._exit(3)
        case "endless":
            while True:
                pass
        case "memory":
            everything = []
            while True:
                everything.append(bytes(1 << 20))
    raise Refused(HTTPStatus.NOT_FOUND, f"no way to fail is called {how}")


ROUTES = [
    ("GET", r"/", home),
    ("POST", r"/greet", greet),
    ("POST", r"/json", echo_json),
    ("POST", r"/size", size),
    ("GET", r"/books", books),
    ("GET", r"/books/(\d+)", book),
    ("GET", r"/visits", visits),
    ("GET", r"/cookie", cookie),
    ("GET", r"/about", about),
    ("GET", r"/fail/(\w+)", fail),
]


def route(environ):
    method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
    # Answers to HEAD are GET's, without their body.
    method = "GET" if method == "HEAD" else method
    found = [
        (of, match, handler)
        for of, pattern, handler in ROUTES
        if (match := re.fullmatch(pattern, path))
    ]
    for of, match, handler in found:
        if of == method:
            return handler(environ, *match.groups())
    if found:
        raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"{path} does not take {method}")
    raise Refused(HTTPStatus.NOT_FOUND, f"nothing is at {path}")


def application(environ, start_response):
    status, more = HTTPStatus.OK, []
    try:
        kind, content, *rest = route(environ)
        more = rest[0] if rest else []
    except Refused as refused:
        status, kind, content = refused.status, JSON, {"error": str(refused)}
    if not isinstance(content, str):
        content = json.dumps(content) + "\n"
    content = content.encode()
    fields = [("Content-Type", kind), ("Content-Length", str(len(content))), *more]
    start_response(f"{status.value} {status.phrase}", fields)
    return [content]
