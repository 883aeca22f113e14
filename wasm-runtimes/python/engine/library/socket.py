"""Sockets that carry HTTP only: what is sent becomes an outbound call of the function.

A function has no network of its own. A stream socket of this module takes HTTP/1.1 requests and
returns their responses; `_faasw.conversation` translates both. There is no DNS either: an address
of `getaddrinfo` stands for a name, which the node resolves.
"""

import errno as _errno
import io as _io
import os as _os
import weakref as _weakref
from enum import IntEnum as _IntEnum, IntFlag as _IntFlag

__all__ = ["create_connection", "getaddrinfo", "gethostbyname", "gethostname", "getfqdn", "socket"]


class AddressFamily(_IntEnum):
    AF_UNSPEC = 0
    AF_UNIX = 1
    AF_INET = 2
    AF_INET6 = 10


class SocketKind(_IntEnum):
    SOCK_STREAM = 1
    SOCK_DGRAM = 2
    SOCK_RAW = 3


class AddressInfo(_IntFlag):
    AI_PASSIVE = 1
    AI_CANONNAME = 2
    AI_NUMERICHOST = 4
    AI_V4MAPPED = 8
    AI_ALL = 16
    AI_ADDRCONFIG = 32
    AI_NUMERICSERV = 1024


class MsgFlag(_IntFlag):
    MSG_OOB = 1
    MSG_PEEK = 2
    MSG_DONTWAIT = 64
    MSG_WAITALL = 256
    MSG_NOSIGNAL = 16384


for _enum in (AddressFamily, SocketKind, AddressInfo, MsgFlag):
    globals().update(_enum.__members__)
    __all__ += _enum.__members__

# The numbers are Linux's. Options are accepted and have no effect.
SOL_SOCKET, SOL_IP, SOL_TCP, SOL_UDP = 1, 0, 6, 17
SO_DEBUG, SO_REUSEADDR, SO_TYPE, SO_ERROR, SO_BROADCAST, SO_SNDBUF, SO_RCVBUF = 1, 2, 3, 4, 6, 7, 8
SO_KEEPALIVE, SO_LINGER, SO_REUSEPORT, SO_RCVTIMEO, SO_SNDTIMEO = 9, 13, 15, 20, 21
SO_BINDTODEVICE = 25
IPPROTO_IP, IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_IPV6 = 0, 1, 6, 17, 41
IPV6_V6ONLY = 26
TCP_NODELAY, TCP_MAXSEG, TCP_KEEPIDLE = 1, 2, 4
TCP_KEEPINTVL, TCP_KEEPCNT, TCP_USER_TIMEOUT = 5, 6, 18
EAI_AGAIN, EAI_FAIL, EAI_FAMILY, EAI_NONAME, EAI_SERVICE, EAI_SOCKTYPE = -3, -4, -6, -2, -8, -7
NI_NUMERICHOST, NI_NUMERICSERV, NI_NAMEREQD, NI_DGRAM = 1, 2, 8, 16
SHUT_RD, SHUT_WR, SHUT_RDWR = 0, 1, 2
SOMAXCONN = 4096
INADDR_ANY, INADDR_LOOPBACK, INADDR_BROADCAST, INADDR_NONE = 0, 0x7F000001, 0xFFFFFFFF, 0xFFFFFFFF
has_ipv6 = True
has_dualstack_ipv6 = lambda: False

__all__ += [_name for _name in list(globals()) if _name.isupper() and not _name.startswith("_")]

error = OSError
timeout = TimeoutError


class herror(OSError):
    pass


class gaierror(OSError):
    pass


_GLOBAL_DEFAULT_TIMEOUT = object()
_default_timeout = None

_ONLY_HTTP = "a function has no sockets, only HTTP/1.1 requests, which the node sends"


def _refusal(what):
    return OSError(_errno.EOPNOTSUPP, f"{what}: {_ONLY_HTTP}")


# Names and addresses

# Addresses that stand for names are in a network that is reserved, and so never a server's
# (RFC 1112, section 4).
_FIRST_ADDRESS = 240 << 24
_addresses: dict[str, str] = {}
_names: dict[str, str] = {}

_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def _literal(host):
    """Returns the family of a literal address, or None for a name."""
    if ":" in host:
        import ipaddress

        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            return None
        return AF_INET6
    parts = host.split(".")
    if len(parts) == 4 and all(part.isdecimal() and int(part) < 256 for part in parts):
        return AF_INET
    return None


def _host(host) -> str:
    if host is None or host == "":
        return "127.0.0.1"
    if isinstance(host, (bytes, bytearray)):
        host = bytes(host).decode("ascii")
    if not host.isascii():
        host = host.encode("idna").decode()
    return host


def _address(name) -> str:
    """Returns the address that stands for a name."""
    name = name.lower()
    if (address := _addresses.get(name)) is None:
        if len(name) > 253 or not name.translate(_NAME_LETTERS).isalnum():
            raise gaierror(EAI_NONAME, f"{name[:80]!r} is no host name")
        address = inet_ntoa((_FIRST_ADDRESS + len(_addresses) + 1).to_bytes(4))
        _addresses[name] = address
        _names[address] = name
    return address


_NAME_LETTERS = str.maketrans(".-_", "aaa")


def getaddrinfo(host, port, family=0, type=0, proto=0, flags=0):
    """Returns the addresses of a literal address, or one that stands for the name."""
    host = _host(host)
    if isinstance(port, (str, bytes)):
        service = port.decode() if isinstance(port, bytes) else port
        port = int(service) if service.isdecimal() else _PORTS.get(service)
        if port is None:
            raise gaierror(EAI_SERVICE, f"the service {service!r} has no known port")
    of_host = _literal(host)
    if of_host is None and flags & AI_NUMERICHOST:
        raise gaierror(EAI_NONAME, f"{host!r} is no address")
    if family not in (AF_UNSPEC, of_host or AF_INET):
        raise gaierror(EAI_NONAME, f"{host} has no address of that family")
    if type not in (0, SOCK_STREAM):
        raise gaierror(EAI_SOCKTYPE, _ONLY_HTTP)
    name = host if flags & AI_CANONNAME else ""
    if of_host == AF_INET6:
        return [(AF_INET6, SOCK_STREAM, IPPROTO_TCP, name, (host, port or 0, 0, 0))]
    address = host if of_host else _address(host)
    return [(AF_INET, SOCK_STREAM, IPPROTO_TCP, name, (address, port or 0))]


def getnameinfo(sockaddr, flags):
    host = _names.get(sockaddr[0], sockaddr[0])
    return (sockaddr[0] if flags & NI_NUMERICHOST else host), str(sockaddr[1])


def gethostbyname(hostname):
    return getaddrinfo(hostname, 0, AF_INET)[0][4][0]


def gethostbyname_ex(hostname):
    return hostname, [], [gethostbyname(hostname)]


def gethostbyaddr(ip_address):
    return _names.get(ip_address, ip_address), [], [ip_address]


def gethostname():
    return "localhost"


def getfqdn(name=""):
    return name if name and name != "0.0.0.0" else gethostname()


def getservbyname(servicename, protocolname="tcp"):
    if servicename in _PORTS:
        return _PORTS[servicename]
    raise OSError("service/proto not found")


def getservbyport(port, protocolname="tcp"):
    for name, number in _PORTS.items():
        if number == port:
            return name
    raise OSError("port/proto not found")


def getprotobyname(protocolname):
    return {"tcp": IPPROTO_TCP, "udp": IPPROTO_UDP, "icmp": IPPROTO_ICMP}[protocolname]


def if_nameindex():
    return []


def if_nametoindex(name):
    raise OSError(_errno.ENODEV, "a function has no network interfaces")


def inet_aton(ip_string):
    if _literal(ip_string) != AF_INET:
        raise OSError("illegal IP address string passed to inet_aton")
    return bytes(int(part) for part in ip_string.split("."))


def inet_ntoa(packed_ip):
    return ".".join(map(str, packed_ip))


def inet_pton(address_family, ip_string):
    if address_family == AF_INET:
        return inet_aton(ip_string)
    if _literal(ip_string) != AF_INET6:
        raise OSError("illegal IP address string passed to inet_pton")
    import ipaddress

    return ipaddress.IPv6Address(ip_string).packed


def inet_ntop(address_family, packed_ip):
    if address_family == AF_INET:
        return inet_ntoa(packed_ip)
    import ipaddress

    return str(ipaddress.IPv6Address(bytes(packed_ip)))


def htons(x):
    return int.from_bytes(x.to_bytes(2, "little"))


def htonl(x):
    return int.from_bytes(x.to_bytes(4, "little"))


ntohs, ntohl = htons, htonl


def getdefaulttimeout():
    return _default_timeout


def setdefaulttimeout(timeout):
    global _default_timeout
    _default_timeout = timeout


# Sockets

# Bytes of one `send`.
_SENT_AT_ONCE = 256 * 1024

# Numbers that no file has, for `select` and `fileno`. A socket that is not closed may be freed.
_next_number = 1 << 20
_by_number: _weakref.WeakValueDictionary[int, "socket"] = _weakref.WeakValueDictionary()


class SocketIO(_io.RawIOBase):
    """What `makefile` buffers."""

    def __init__(self, sock, mode):
        self._sock = sock
        self._mode = mode
        self.mode = mode if "b" in mode else mode + "b"

    def readinto(self, buffer):
        self._checkClosed()
        try:
            return self._sock.recv_into(buffer)
        except BlockingIOError:
            return None

    def write(self, data):
        self._checkClosed()
        return self._sock.send(data)

    def readable(self):
        return "r" in self._mode and not self.closed

    def writable(self):
        return "w" in self._mode and not self.closed

    def seekable(self):
        return False

    def fileno(self):
        self._checkClosed()
        return self._sock.fileno()

    @property
    def name(self):
        return -1 if self.closed else self.fileno()

    def close(self):
        if not self.closed:
            super().close()
            self._sock._drop_file()
            self._sock = None


class socket:
    """A connection that carries HTTP/1.1 requests."""

    _conversation = None

    def __init__(self, family=-1, type=-1, proto=-1, fileno=None):
        family = AF_INET if family == -1 else family
        type = SOCK_STREAM if type == -1 else type
        if family not in (AF_INET, AF_INET6):
            raise _refusal("a socket of this address family")
        if type != SOCK_STREAM:
            raise _refusal("a socket of this type")
        if fileno is not None:
            raise _refusal("a socket of a descriptor")
        self.family = AddressFamily(family)
        self.type = SocketKind(type)
        self.proto = 0 if proto == -1 else proto
        self._timeout = _default_timeout
        self._peer = None
        self._number = None
        self._files = 0
        self._is_closed = False
        self._has_shut = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self._is_closed:
            self.close()

    def __repr__(self):
        state = " [closed]" if self._is_closed else ""
        return f"<{type(self).__module__}.{type(self).__qualname__}{state} peer={self._peer}>"

    def __getstate__(self):
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")

    # Connecting

    def connect(self, address):
        if self._is_closed:
            raise OSError(_errno.EBADF, "Bad file descriptor")
        if self._conversation is not None:
            raise OSError(_errno.EISCONN, "the socket is connected")
        host, port = address[:2]
        host = _host(host)
        self._peer = (host, port, *address[2:])
        self._conversation = _conversation(host, port, self._timeout)

    def connect_ex(self, address):
        try:
            self.connect(address)
        except OSError as error:
            return error.errno
        return 0

    def _connected(self):
        if self._conversation is None:
            number = _errno.EBADF if self._is_closed else _errno.ENOTCONN
            raise OSError(number, _os.strerror(number))
        return self._conversation

    def _wait(self, pollable):
        """Waits as long as the socket's timeout allows."""
        if pollable is None:
            return
        if self._timeout == 0:
            pollable.__exit__(None, None, None)
            raise BlockingIOError(_errno.EAGAIN, "the operation would block")
        if not _wait(pollable, self._timeout):
            raise TimeoutError("timed out")

    # Sending

    def send(self, data, flags=0):
        conversation = self._connected()
        if self._has_shut:
            raise BrokenPipeError(_errno.EPIPE, "Broken pipe")
        # The conversation keeps a copy until it is sent.
        data = memoryview(data).cast("B")[:_SENT_AT_ONCE]
        if not conversation.send(data) and self._timeout != 0:
            self._send_waiting()
        return len(data)

    def _send_waiting(self):
        conversation = self._conversation
        while not conversation.advance():
            self._wait(conversation.pollable_to_write())

    def sendall(self, data, flags=0):
        data = memoryview(data).cast("B")
        while data:
            data = data[self.send(data) :]
            if self._timeout == 0:
                self._send_waiting()

    def sendmsg(self, buffers, ancdata=(), flags=0, address=None):
        return self.send(b"".join(buffers))

    def sendfile(self, file, offset=0, count=None):
        if offset:
            file.seek(offset)
        sent = 0
        while count is None or sent < count:
            size = 65536 if count is None else min(65536, count - sent)
            if not (piece := file.read(size)):
                break
            self.sendall(piece)
            sent += len(piece)
        return sent

    # Receiving

    def recv(self, bufsize, flags=0):
        conversation = self._connected()
        if flags & MSG_PEEK:
            raise _refusal("MSG_PEEK")
        while (received := conversation.receive(bufsize)) is None:
            pollable = conversation.pollable_to_read()
            if pollable is None:
                if self._timeout == 0:
                    raise BlockingIOError(_errno.EAGAIN, "the operation would block")
                if not conversation.is_waited_for:
                    raise _refusal("reading before a request was sent")
            self._wait(pollable)
        return received

    def recv_into(self, buffer, nbytes=0, flags=0):
        with memoryview(buffer).cast("B") as view:
            received = self.recv(nbytes or len(view), flags)
            view[: len(received)] = received
        return len(received)

    def makefile(self, mode="r", buffering=None, *, encoding=None, errors=None, newline=None):
        if not set(mode) <= set("rwb"):
            raise ValueError(f"invalid mode {mode!r} (only r, w, b allowed)")
        reads, writes = "r" in mode or "w" not in mode, "w" in mode
        raw = SocketIO(self, ("r" if reads else "") + ("w" if writes else ""))
        self._files += 1
        if buffering is None or buffering < 0:
            buffering = _io.DEFAULT_BUFFER_SIZE
        if buffering == 0:
            if "b" not in mode:
                raise ValueError("unbuffered streams must be binary")
            return raw
        if reads and writes:
            buffer = _io.BufferedRWPair(raw, raw, buffering)
        else:
            buffer = (_io.BufferedReader if reads else _io.BufferedWriter)(raw, buffering)
        if "b" in mode:
            return buffer
        text = _io.TextIOWrapper(buffer, _io.text_encoding(encoding), errors, newline)
        text.mode = mode
        return text

    # Closing

    def shutdown(self, how):
        self._connected()
        self._has_shut = self._has_shut or how != SHUT_RD

    def close(self):
        self._is_closed = True
        if self._files <= 0:
            self._close_conversation()

    def _drop_file(self):
        self._files -= 1
        if self._is_closed and self._files <= 0:
            self._close_conversation()

    def _close_conversation(self):
        _by_number.pop(self._number, None)
        self._number = None
        if self._conversation is not None:
            self._conversation.close()
            self._conversation = None

    def __del__(self):
        # Files of the socket refer to it, so none is left.
        if self._conversation is not None:
            self._close_conversation()

    def detach(self):
        """Closes the socket's number; its connection belongs to another one now."""
        number = self.fileno()
        self._conversation = None
        self._is_closed = True
        _by_number.pop(number, None)
        self._number = None
        return number

    # State of the connection, and its settings

    def fileno(self):
        global _next_number
        if self._is_closed and self._conversation is None:
            return -1
        if self._number is None:
            self._number = _next_number
            _next_number += 1
            _by_number[self._number] = self
        return self._number

    def getpeername(self):
        self._connected()
        return self._peer

    def getsockname(self):
        return ("::", 0, 0, 0) if self.family == AF_INET6 else ("0.0.0.0", 0)

    def settimeout(self, value):
        if value is not None and value < 0:
            raise ValueError("Timeout value out of range")
        self._timeout = None if value is None else float(value)

    def gettimeout(self):
        return self._timeout

    timeout = property(gettimeout)

    def setblocking(self, flag):
        self._timeout = None if flag else 0.0

    def getblocking(self):
        return self._timeout != 0

    def setsockopt(self, *_):
        """Has no effect: the node makes the connections."""

    def getsockopt(self, level, optname, buflen=None):
        if (level, optname) == (SOL_SOCKET, SO_TYPE):
            return int(self.type)
        return bytes(buflen) if buflen else 0

    def get_inheritable(self):
        return False

    def set_inheritable(self, inheritable):
        """Has no effect: a function has one process."""

    def bind(self, address):
        if address[1] not in (0, "0"):
            raise _refusal("bind")

    def _refuse(name):
        def refuse(self, *_, **__):
            raise _refusal(name)

        refuse.__name__ = name
        return refuse

    for _name in ("accept", "listen", "dup", "recvfrom", "recvfrom_into", "recvmsg", "sendto"):
        locals()[_name] = _refuse(_name)
    del _name, _refuse


SocketType = socket


def _conversation(host, port, timeout):
    from _faasw.conversation import Conversation

    conversation = Conversation(_names.get(host, host), int(port))
    conversation.connect_timeout = timeout
    return conversation


def _wait(pollable, timeout):
    from _faasw.outbound import wait

    return wait(pollable, timeout)


def create_connection(
    address, timeout=_GLOBAL_DEFAULT_TIMEOUT, source_address=None, *, all_errors=False
):
    """Connects to `(host, port)`; the node connects when a request is sent."""
    host, port = address
    family, kind, proto, _, sockaddr = getaddrinfo(host, port, 0, SOCK_STREAM)[0]
    sock = socket(family, kind, proto)
    if timeout is not _GLOBAL_DEFAULT_TIMEOUT:
        sock.settimeout(timeout)
    sock.connect(sockaddr)
    return sock


def create_server(*_, **__):
    raise _refusal("create_server")


def socketpair(*_, **__):
    raise _refusal("socketpair")


def fromfd(*_, **__):
    raise _refusal("fromfd")


def send_fds(*_, **__):
    raise _refusal("send_fds")


recv_fds = send_fds


def close(fd):
    raise _refusal("close")


# `select.poll` and `select.select` for these sockets


def _ready(number, writes):
    """Returns whether a socket is ready to be read, or else written."""
    if (sock := _by_number.get(number)) is None:
        raise OSError(_errno.EBADF, "Bad file descriptor")
    conversation = sock._conversation
    if conversation is None:
        return True
    return conversation.advance() if writes else conversation.is_readable()


def _wait_for_sockets(wanted, timeout):
    """Returns those of `(number, writes)` that are ready, after at most `timeout` seconds."""
    import time

    from _faasw.outbound import poll_once

    deadline = None if timeout is None else time.monotonic() + timeout
    while not (ready := [one for one in wanted if _ready(*one)]):
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            break
        pollables = []
        for number, writes in wanted:
            conversation = _by_number[number]._conversation
            pollable = (
                conversation.pollable_to_write() if writes else conversation.pollable_to_read()
            )
            if pollable is not None:
                pollables.append(pollable)
        if not pollables and left is None:
            raise _refusal("waiting for what no request was sent for")
        poll_once(pollables, left)
    return ready


def _number_of(file):
    return file if isinstance(file, int) else file.fileno()


class _Poll:
    """`select.poll`, for sockets of this module."""

    def __init__(self):
        self._masks = {}

    def register(self, fd, eventmask=7):
        self._masks[_number_of(fd)] = eventmask

    def modify(self, fd, eventmask):
        if (number := _number_of(fd)) not in self._masks:
            raise FileNotFoundError(_errno.ENOENT, _os.strerror(_errno.ENOENT))
        self._masks[number] = eventmask

    def unregister(self, fd):
        del self._masks[_number_of(fd)]

    def poll(self, timeout=None):
        reads, writes = select.POLLIN, select.POLLOUT
        masks = self._masks.items()
        wanted = [(number, False) for number, mask in masks if mask & reads]
        wanted += [(number, True) for number, mask in masks if mask & writes]
        seconds = None if timeout is None or timeout < 0 else timeout / 1000
        if not wanted and seconds is None:
            return []
        events = {}
        for number, is_writing in _wait_for_sockets(wanted, seconds):
            events[number] = events.get(number, 0) | (writes if is_writing else reads)
        return list(events.items())


def _select(rlist, wlist, xlist, timeout=None):
    """`select.select`, for sockets of this module."""
    readers = {_number_of(file): file for file in rlist}
    writers = {_number_of(file): file for file in wlist}
    wanted = [(number, False) for number in readers] + [(number, True) for number in writers]
    ready = _wait_for_sockets(wanted, timeout)
    return (
        [readers[number] for number, writes in ready if not writes],
        [writers[number] for number, writes in ready if writes],
        [],
    )


import select

_select.__name__, _Poll.__name__ = "select", "poll"
select.select, select.poll = _select, _Poll
for _name, _value in {"POLLIN": 1, "POLLPRI": 2, "POLLOUT": 4, "POLLERR": 8, "POLLHUP": 16}.items():
    if not hasattr(select, _name):
        setattr(select, _name, _value)
