#!/usr/bin/env python3
"""Serves JSON over HTTP/1.1 to the measured functions, and counts connections and requests.

Prints its address. `/orders` has 1 KB of JSON, every other path the counts. The server needs
uvloop: with asyncio's own loop, it would take a larger part of the measured time.
"""

import asyncio
import json

import uvloop

ORDERS = {
    "orders": [
        {"id": id, "name": f"item number {id}", "price": id * 1.25 + 0.5, "quantity": id % 5 + 1}
        for id in range(15)
    ]
}
END = b"\r\n\r\n"


def response(value):
    body = json.dumps(value, separators=(",", ":")).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + END + body


class Upstream(asyncio.Protocol):
    orders = response(ORDERS)
    connections = requests = 0

    def connection_made(self, transport):
        Upstream.connections += 1
        self.transport, self.received = transport, b""

    def data_received(self, data):
        self.received += data
        while END in self.received:
            head, _, self.received = self.received.partition(END)
            if head.startswith(b"GET /orders "):
                Upstream.requests += 1
                self.transport.write(self.orders)
            else:
                counts = {"connections": self.connections, "requests": self.requests}
                self.transport.write(response(counts))
            if b"\r\nconnection: close" in head.lower():
                self.transport.close()


async def main():
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", 0, backlog=1024)
    address, port = server.sockets[0].getsockname()
    print(f"http://{address}:{port}/", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
