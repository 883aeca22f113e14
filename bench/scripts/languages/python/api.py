"""Parses about 10 KB of JSON, transforms it and serialises it again."""

import json


def answer(body):
    customers = {}
    for order in json.loads(body)["orders"]:
        total = sum(item["price"] * item["quantity"] for item in order["items"])
        entry = customers.setdefault(order["customer"], {"orders": [], "total": 0})
        names = [item["name"].upper() for item in order["items"]]
        entry["orders"].append({"id": order["id"], "total": total, "items": names})
        entry["total"] += total
    return "application/json", json.dumps({"customers": customers}).encode()
