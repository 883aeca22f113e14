"""Translates a query with sqlglot.

The top level imports all dialects, one module each, and translates once, because sqlglot creates
objects at its first use.
"""

import sqlglot
import sqlglot.dialects
import sqlglot.optimizer

for name in sqlglot.dialects.MODULE_BY_DIALECT:
    getattr(sqlglot.dialects, name)


def translate(query):
    return sqlglot.transpile(query, read="mysql", write="postgres")[0]


translate("SELECT 1")


def answer(body):
    return "text/plain", translate("SELECT 1 + 1").encode()
