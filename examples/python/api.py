"""A JSON API: books by their numbers, with a search. What is stored is part of the seed, so what
one request changes no other one sees; a store is for what is to last."""

import re
from json import JSONDecodeError

from faasw import Request, Response

BOOKS = {
    1: {"id": 1, "title": "The Left Hand of Darkness", "author": "Ursula K. Le Guin", "year": 1969},
    2: {"id": 2, "title": "Solaris", "author": "Stanisław Lem", "year": 1961},
    3: {"id": 3, "title": "Kindred", "author": "Octavia E. Butler", "year": 1979},
}


def problem(status: int, title: str) -> Response:
    headers = {"content-type": "application/problem+json"}
    return Response.json({"title": title, "status": status}, status, headers)


def find(wanted: str) -> Response:
    wanted = wanted.casefold()
    found = [
        book for book in BOOKS.values() if wanted in f"{book['title']} {book['author']}".casefold()
    ]
    return Response.json(sorted(found, key=lambda book: book["year"]))


def add(request: Request) -> Response:
    try:
        book = request.json()
    except (JSONDecodeError, UnicodeDecodeError):
        return problem(400, "The body is no JSON")
    match book:
        case {"title": str(title), "author": str(author), "year": int(year)}:
            number = len(BOOKS) + 1
            BOOKS[number] = {"id": number, "title": title, "author": author, "year": year}
            return Response.json(BOOKS[number], 201, {"location": f"books/{number}"})
    return problem(422, "A book has a title, an author and a year")


def handler(request: Request) -> Response:
    match request.method, request.path:
        case "GET", "/books":
            return find(request.query.get("q", ""))
        case "POST", "/books":
            return add(request)
    number = re.fullmatch(r"/books/(\d+)", request.path)
    if number is None or (book := BOOKS.get(int(number[1]))) is None:
        return problem(404, "There is no such book")
    return Response.json(book)
