"""Returns a summary of the upstream server's JSON, as JSON."""

import json


def of(told):
    orders = told["orders"]
    total = sum(order["price"] * order["quantity"] for order in orders)
    return json.dumps({"total": total, "names": [order["name"] for order in orders]}).encode()
