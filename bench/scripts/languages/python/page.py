"""Renders a page from a Jinja2 template, which the top level compiles."""

from jinja2 import Environment

TEMPLATE = """<!doctype html>
<title>{{ title }}</title>
<h1>{{ title }}</h1>
<ul>
{% for item in items %}  <li class="{{ item.kind }}"><a href="/items/{{ item.id }}">{{ item.name }}</a>: {{ "%.2f"|format(item.price) }}</li>
{% endfor %}</ul>
"""

page = Environment(autoescape=True).from_string(TEMPLATE)


def answer(body):
    items = [
        {"id": id, "name": f"Item <{id}>", "kind": "odd" if id % 2 else "even", "price": id * 1.25}
        for id in range(50)
    ]
    return "text/html; charset=utf-8", page.render(title="Items & more", items=items).encode()
