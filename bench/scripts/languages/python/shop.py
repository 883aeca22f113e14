"""A page of Flask's, out of a template that the first request for it compiles."""

from flask import Flask, render_template

app = Flask(__name__)


@app.get("/")
def page():
    items = [{"id": id, "name": f"Item <{id}>", "price": id * 1.25} for id in range(50)]
    return render_template("shop.html", title="Items & more", items=items)
