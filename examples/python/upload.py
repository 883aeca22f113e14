"""A form with an upload: shows the size and the SHA-256 of a file."""

import hashlib
import html

from faasw import File, Response

PAGE = """<!doctype html>
<title>Upload</title>
<form method="post" enctype="multipart/form-data">
  <input name="note"> <input type="file" name="file" required> <button>Send</button>
</form>
{result}
"""


def page(result="", status=200):
    return Response(PAGE.format(result=result), status, content_type="text/html; charset=utf-8")


def handler(request):
    if request.method != "POST":
        return page()
    try:
        form = request.form()
    except ValueError as error:
        return page(f"<p>{html.escape(str(error))}</p>", 400)
    file = form.get("file")
    if not isinstance(file, File):
        return page("<p>A file is missing.</p>", 400)
    name, note = html.escape(file.filename), html.escape(str(form.get("note", "")))
    digest = hashlib.file_digest(file.file, "sha256").hexdigest()
    return page(f"<p>{name}: {len(file)} bytes, SHA-256 {digest}. {note}</p>")
