"""Renders a Flask page from a template, which the first request compiles."""

from flask import Flask, render_template

app = Flask(__name__)


@app.get("/")
def page():
    items = [{"id": id, "name": f"Item <{id}>", "price": id * 1.25} for id in range(50)]
    return render_template("shop.html", title="Items & more", items=items)
