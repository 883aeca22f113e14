"""The servers that the examples' functions ask: an API that wants a key, and an origin.

Prints the port that both listen on. What was asked of it, it tells at `/asked`.
"""

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "k3y-of-the-api"

# Path of the origin: Cache-Control of its answers.
CACHED = {
    "/minute": "public, max-age=60",
    "/second": "max-age=1",
    "/shared": "max-age=60, s-maxage=0",
    "/no-store": "no-store, max-age=60",
    "/private": "private, max-age=60",
    "/large": "max-age=60",
    "/cookie": "max-age=60",
    "/nothing": "",
}

asked: dict[str, int] = {}


class Upstream(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path
        if path == "/asked":
            return self.tell(
                200, "".join(f"{path} {count}\n" for path, count in sorted(asked.items()))
            )
        asked[path] = asked.get(path, 0) + 1
        if path.startswith("/v1/items/"):
            return self.item(path.removeprefix("/v1/items/"))
        if path == "/slow":
            # The sleep ends with the process at the latest.
            time.sleep(60)
        if path in CACHED or path.startswith("/page/"):
            return self.origin(path)
        if path == "/pieces":
            return self.pieces()
        if path == "/breaks":
            self.head(200, [("Content-Length", "1000"), ("Cache-Control", "max-age=60")])
            self.wfile.write(b"half")
            return self.end()
        if path == "/breaks-chunked":
            self.head(200, [("Transfer-Encoding", "chunked"), ("Cache-Control", "max-age=60")])
            self.wfile.write(b"4\r\nhalf\r\n")
            return self.end()
        self.tell(404, "no such page\n")

    def item(self, name: str) -> None:
        if self.headers["Authorization"] != f"Bearer {KEY}":
            return self.tell(401, "no key\n")
        if name == "slow":
            time.sleep(60)
        if name == "drip":
            self.head(200, [("Content-Length", "1000")])
            for _ in range(600):
                self.wfile.write(b"x")
                time.sleep(0.1)
        if name == "breaks":
            self.head(200, [("Content-Length", "1000")])
            self.wfile.write(b"{")
            return self.end()
        if name == "large":
            return self.tell(200, "x" * ((1 << 20) + 1))
        if name == "largest":
            return self.tell(200, "x" * (1 << 20))
        if name == "busy":
            return self.tell(429, "", [("Retry-After", "7")])
        if name == "broken":
            return self.tell(500, "")
        if name == "gone":
            return self.tell(404, "")
        trace = self.headers["traceparent"] or ""
        self.tell(200, f'{{"id":"{name}","traceparent":"{trace}"}}\n')

    def origin(self, path: str) -> None:
        headers = [
            ("Cache-Control", CACHED.get(path, "max-age=60")),
            ("ETag", '"1"'),
            ("Server-Only", "x"),
        ]
        if path == "/cookie":
            headers.append(("Set-Cookie", "a=b"))
        size = 300_000 if path == "/large" else 0
        self.tell(200, f"{path} {asked[path]}\n" + "x" * size, headers)

    def pieces(self) -> None:
        self.head(200, [("Transfer-Encoding", "chunked"), ("Cache-Control", "max-age=60")])
        for number in range(5):
            self.wfile.write(b"2\r\n%d\n\r\n" % number)
            time.sleep(0.1)
        self.wfile.write(b"0\r\n\r\n")

    def head(self, status: int, headers: list[tuple[str, str]]) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def tell(self, status: int, text: str, headers: list[tuple[str, str]] = []) -> None:
        self.head(
            status,
            [("Content-Type", "application/json"), ("Content-Length", str(len(text))), *headers],
        )
        self.wfile.write(text.encode())

    def end(self) -> None:
        self.wfile.flush()
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *request: object) -> None:
        # Clients that gave up waiting have closed their connection; that is no error.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(*request)


server = Server(("127.0.0.1", 0), Upstream)
print(server.server_port, flush=True)
server.serve_forever()
