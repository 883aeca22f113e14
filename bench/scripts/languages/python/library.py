"""Translates a query by sqlglot, whose dialects, a module each, are imported where the script begins. What
it makes when it is first used is made there, too.
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
