"""What is measured: the same work in each language, as scripts of a node and for its peers."""

import json
import shutil
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
LANGUAGES = {"js": "JavaScript", "python": "Python"}
ENDING = {"js": ".js", "python": ".py"}
# The works that peers do, too.
WORKS = {
    "hello": "a text",
    "api": "10 KB of JSON, parsed, transformed, written",
    "page": "a page of 50 items out of a template",
    "index": "a lookup in an index of 2 MB",
}
# Those whose top level takes long.
HEAVY = {
    ("js", "index"): "an index of 2 MB",
    ("js", "library"): "mathjs, 1.7 MB in a bundle",
    ("python", "index"): "an index of 2 MB",
    ("python", "library"): "sqlglot, 150 modules",
}
# Packages of Python's that a work imports.
IMPORTS = {"page": ("jinja2", "markupsafe"), "library": ("sqlglot",)}

# How JavaScript is begun: on a node, on a node that evaluates the script in each request, and by
# peers, which take one file.
BEGIN = 'addEventListener("fetch", (event) => event.respondWith(answer(event.request)));\n'
EARLY = f'import {{ answer }} from "./work.js";\n\n{BEGIN}'
LATE = (
    """const answer = (request) => import("./work.js").then((work) => work.answer(request));

"""
    + BEGIN
)


def orders():
    """Some 10 KB of JSON."""
    item = {"name": "item of some kind", "price": 12.5, "quantity": 3}
    items = [[item | {"price": 1.25 * i + j} for j in range(4)] for i in range(40)]
    return {"orders": [{"id": i, "customer": f"c{i % 7}", "items": items[i]} for i in range(25)]}


def table():
    """2 MB of lines."""
    return "\n".join(
        f"k{i},name number {i:010} of the whole table,{i * 7}.5" for i in range(42_000)
    )


def source(tools, language, work):
    """The text of a work."""
    if (language, work) == ("js", "library"):
        return tools.bundle(HERE / "js/library.js").read_text()
    text = (HERE / language / f"{work}{ENDING[language]}").read_text()
    if work == "index":
        literal = f"TABLE = {json.dumps(table())}"
        if language == "js":
            return f"const {literal};\n{text}"
        return text.replace("import json\n", f"import json\n\n{literal}\n")
    return text


def script(tools, folder, language, work, is_late=False):
    """A folder that a node takes."""
    folder.mkdir(parents=True)
    text = source(tools, language, work)
    (folder / f"work{ENDING[language]}").write_text(text)
    if language == "js":
        (folder / "handler.js").write_text(LATE if is_late else EARLY)
    else:
        shutil.copy(HERE / f"python/{'late' if is_late else 'handler'}.py", folder / "handler.py")
        tools.add_packages(folder, *IMPORTS.get(work, ()))
    return folder


def for_peers(tools, folder, language, work):
    """A folder that peers take; gives back the file that they begin with in JavaScript."""
    folder.mkdir(parents=True, exist_ok=True)
    text = source(tools, language, work)
    if language == "js":
        (folder / "handler.js").write_text(f"{text.replace('export ', '', 1)}\n{BEGIN}")
        return folder / "handler.js"
    (folder / "work.py").write_text(text)
    for name in ("asgi.py", "component.py"):
        shutil.copy(HERE / "python" / name, folder)
    tools.add_packages(folder, *IMPORTS.get(work, ()))
    return folder


def shop(tools, folder):
    """Flask's page, whose template its first request compiles."""
    folder.mkdir(parents=True)
    shutil.copy(HERE / "python/shop.py", folder / "handler.py")
    shutil.copytree(HERE / "python/templates", folder / "templates")
    tools.add_packages(folder, *tools.all_of_flask())
    return folder
