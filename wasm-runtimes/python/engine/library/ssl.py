"""There is no TLS in a function: its requests come through the node, which has ended theirs.

The module can be imported, and contexts be made, since much that only might use them could not be
loaded otherwise; what would begin TLS says that there is none.
"""

OPENSSL_VERSION = "OpenSSL 0.0.0 (none)"
OPENSSL_VERSION_INFO = (0, 0, 0, 0, 0)
OPENSSL_VERSION_NUMBER = 0
HAS_SNI = HAS_ALPN = HAS_TLSv1_2 = HAS_TLSv1_3 = False
CERT_NONE, CERT_OPTIONAL, CERT_REQUIRED = range(3)
PROTOCOL_TLS, PROTOCOL_TLS_CLIENT, PROTOCOL_TLS_SERVER = 2, 16, 17

_NONE = "there is no TLS in this Python: a function's requests and responses are the node's"


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


class SSLContext:
    """Takes settings, and does nothing with them."""

    def __init__(self, protocol=PROTOCOL_TLS):
        self.protocol = protocol
        self.check_hostname = True
        self.verify_mode = CERT_REQUIRED

    def _set(self, *_, **__):
        return None

    load_cert_chain = load_default_certs = load_verify_locations = _set
    set_alpn_protocols = set_ciphers = _set

    def wrap_socket(self, *_, **__):
        raise SSLError(_NONE)

    wrap_bio = wrap_socket


def create_default_context(*_, **__):
    return SSLContext()


_create_default_https_context = _create_unverified_context = create_default_context


class SSLSocket:
    def __init__(self, *_, **__):
        raise SSLError(_NONE)


class SSLObject(SSLSocket):
    pass


class MemoryBIO(SSLSocket):
    pass


def __getattr__(name):
    raise AttributeError(f"ssl has no {name}: {_NONE}")
