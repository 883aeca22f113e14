"""The measured work in each language, as scripts for a node and for its peers."""

import json
import shutil
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
LANGUAGES = {"js": "JavaScript", "python": "Python"}
ENDING = {"js": ".js", "python": ".py"}
# Work that peers also do.
WORKS = {
    "hello": "a text",
    "api": "10 KB of JSON, parsed, transformed, written",
    "page": "a page of 50 items out of a template",
    "index": "a lookup in an index of 2 MB",
}
# Work with a slow top level.
HEAVY = {
    ("js", "index"): "an index of 2 MB",
    ("js", "library"): "mathjs, 1.7 MB in a bundle",
    ("python", "index"): "an index of 2 MB",
    ("python", "library"): "sqlglot, 150 modules",
}
# Python packages that the work imports.
HTTPX = ("anyio", "certifi", "h11", "httpcore", "httpx", "idna", "typing_extensions.py")
IMPORTS = {"page": ("jinja2", "markupsafe"), "library": ("sqlglot",), "outbound": HTTPX}

# The start of JavaScript: on a node (`EARLY`), on a node that evaluates the script in each request
# (`LATE`), and for peers, which take one file (`BEGIN`).
BEGIN = 'addEventListener("fetch", (event) => event.respondWith(answer(event.request)));\n'
EARLY = f'import {{ answer }} from "./work.js";\n\n{BEGIN}'
LATE = (
    """const answer = (request) => import("./work.js").then((work) => work.answer(request));

"""
    + BEGIN
)


def orders():
    """Returns about 10 KB of JSON."""
    item = {"name": "item of some kind", "price": 12.5, "quantity": 3}
    items = [[item | {"price": 1.25 * i + j} for j in range(4)] for i in range(40)]
    return {"orders": [{"id": i, "customer": f"c{i % 7}", "items": items[i]} for i in range(25)]}


def table():
    """Returns 2 MB of lines."""
    return "\n".join(
        f"k{i},name number {i:010} of the whole table,{i * 7}.5" for i in range(42_000)
    )


def source(tools, language, work):
    """Returns the source text of the work."""
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
    """Makes a folder for a node."""
    if (ready := HERE / language / work).is_dir():
        shutil.copytree(ready, folder)
        tools.add_packages(folder, *IMPORTS.get(work, ()))
        return folder
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
    """Makes a folder for peers. Returns the file to run for JavaScript, else the folder."""
    if (ready := HERE / language / work).is_dir():
        # The peers import packages of the virtual environment, if any.
        shutil.copytree(ready, folder, dirs_exist_ok=True)
        return folder
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
    """Makes a folder with Flask's page, whose template the first request compiles."""
    folder.mkdir(parents=True)
    shutil.copy(HERE / "python/shop.py", folder / "handler.py")
    shutil.copytree(HERE / "python/templates", folder / "templates")
    tools.add_packages(folder, *tools.all_of_flask())
    return folder
