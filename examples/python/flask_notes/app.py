"""Notes in Flask: a form, a redirect, and notes in a key-value store."""

import time

import faasw
from flask import Flask, redirect, render_template, request, url_for

app = Flask(__name__)
LIMIT = 20


@app.get("/")
def index():
    store = faasw.kv.open("default")
    keys = list(store.keys("note:"))[-LIMIT:]
    notes = [note.decode() for note in store.get_many(keys).values()]
    return render_template("index.html", notes=notes)


@app.post("/notes")
def add():
    text = request.form["text"].strip()[:200]
    if text:
        faasw.kv.open("default").set(f"note:{time.time_ns():020}", text)
    return redirect(url_for("index"))
