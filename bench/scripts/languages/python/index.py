"""Looks up in a table, TABLE, which stands before this file; see run."""

import json


def build():
    index = {}
    for line in TABLE.split("\n"):
        key, name, value = line.split(",")
        index[key] = {"name": name, "value": float(value)}
    return index


index = None if IN_REQUEST else build()


def answer(body):
    return "application/json", json.dumps((index or build())["k12345"]).encode()
