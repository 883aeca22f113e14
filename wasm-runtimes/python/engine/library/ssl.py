"""There is no TLS in a function: its requests come through the node, which has ended theirs.

The module can be imported, since much that only mentions it could not be otherwise; what makes
something of it says that there is none.
"""


class SSLError(OSError):
    """What TLS fails with."""


class SSLZeroReturnError(SSLError):
    pass


class SSLWantReadError(SSLError):
    pass


class SSLWantWriteError(SSLError):
    pass


class SSLSyscallError(SSLError):
    pass


class SSLEOFError(SSLError):
    pass


class SSLCertVerificationError(SSLError, ValueError):
    pass


CertificateError = SSLCertVerificationError
socket_error = OSError


def create_default_context(*_, **__):
    raise SSLError(_NONE)


_create_default_https_context = _create_unverified_context = create_default_context


class SSLContext:
    def __init__(self, *_, **__):
        raise SSLError(_NONE)


class SSLObject(SSLContext):
    pass


class SSLSocket(SSLContext):
    pass


class MemoryBIO(SSLContext):
    pass


_NONE = "there is no TLS in this Python: a function's requests and responses are the node's"


def __getattr__(name):
    raise AttributeError(f"ssl has no {name}: {_NONE}")
