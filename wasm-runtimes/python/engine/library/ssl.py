"""TLS as far as a function has it: the node encrypts, and verifies the servers.

Contexts and sockets have the shape that HTTP libraries expect. Wrapping a socket makes its requests
`https`. What the node decides cannot be set here: client certificates raise `SSLError`; a script's
own authorities and switched-off verification have no effect, and a warning says so.
"""

import os as _os
import socket as _socket
import warnings as _warnings
from collections import namedtuple as _namedtuple
from enum import Enum as _Enum, IntEnum as _IntEnum, IntFlag as _IntFlag

# Libraries compare the version with what they need of OpenSSL.
OPENSSL_VERSION = "OpenSSL 3.0.0 (interface only: TLS is the node's)"
OPENSSL_VERSION_INFO = (3, 0, 0, 0, 0)
OPENSSL_VERSION_NUMBER = 0x30000000
_OPENSSL_API_VERSION = OPENSSL_VERSION_INFO
_DEFAULT_CIPHERS = "DEFAULT"

HAS_SNI = HAS_ALPN = HAS_TLSv1_2 = HAS_TLSv1_3 = HAS_NEVER_CHECK_COMMON_NAME = True
HAS_ECDH = True
HAS_NPN = HAS_SSLv2 = HAS_SSLv3 = HAS_TLSv1 = HAS_TLSv1_1 = HAS_PSK = HAS_PHA = False
CHANNEL_BINDING_TYPES = []


class _SSLMethod(_IntEnum):
    PROTOCOL_TLS = 2
    PROTOCOL_TLSv1 = 3
    PROTOCOL_TLSv1_1 = 4
    PROTOCOL_TLSv1_2 = 5
    PROTOCOL_TLS_CLIENT = 16
    PROTOCOL_TLS_SERVER = 17


class VerifyMode(_IntEnum):
    CERT_NONE = 0
    CERT_OPTIONAL = 1
    CERT_REQUIRED = 2


class VerifyFlags(_IntFlag):
    VERIFY_DEFAULT = 0
    VERIFY_CRL_CHECK_LEAF = 4
    VERIFY_CRL_CHECK_CHAIN = 12
    VERIFY_X509_STRICT = 32
    VERIFY_ALLOW_PROXY_CERTS = 64
    VERIFY_X509_TRUSTED_FIRST = 32768
    VERIFY_X509_PARTIAL_CHAIN = 524288


class Options(_IntFlag):
    OP_NO_SSLv2 = 0
    OP_LEGACY_SERVER_CONNECT = 4
    OP_ENABLE_KTLS = 8
    OP_IGNORE_UNEXPECTED_EOF = 128
    OP_NO_TICKET = 1 << 14
    OP_SINGLE_ECDH_USE = 0
    OP_SINGLE_DH_USE = 0
    OP_NO_COMPRESSION = 1 << 17
    OP_CIPHER_SERVER_PREFERENCE = 1 << 22
    OP_NO_SSLv3 = 1 << 25
    OP_NO_TLSv1 = 1 << 26
    OP_NO_TLSv1_2 = 1 << 27
    OP_NO_TLSv1_1 = 1 << 28
    OP_NO_TLSv1_3 = 1 << 29
    OP_NO_RENEGOTIATION = 1 << 30
    OP_ALL = 0x80000050


class TLSVersion(_IntEnum):
    MINIMUM_SUPPORTED = -2
    SSLv3 = 768
    TLSv1 = 769
    TLSv1_1 = 770
    TLSv1_2 = 771
    TLSv1_3 = 772
    MAXIMUM_SUPPORTED = -1


class SSLErrorNumber(_IntEnum):
    SSL_ERROR_SSL = 1
    SSL_ERROR_WANT_READ = 2
    SSL_ERROR_WANT_WRITE = 3
    SSL_ERROR_WANT_X509_LOOKUP = 4
    SSL_ERROR_SYSCALL = 5
    SSL_ERROR_ZERO_RETURN = 6
    SSL_ERROR_WANT_CONNECT = 7
    SSL_ERROR_EOF = 8
    SSL_ERROR_INVALID_ERROR_CODE = 10


class AlertDescription(_IntEnum):
    ALERT_DESCRIPTION_CLOSE_NOTIFY = 0
    ALERT_DESCRIPTION_HANDSHAKE_FAILURE = 40
    ALERT_DESCRIPTION_INTERNAL_ERROR = 80
    ALERT_DESCRIPTION_UNKNOWN_CA = 48


for _enum in (_SSLMethod, VerifyMode, VerifyFlags, Options, SSLErrorNumber, AlertDescription):
    globals().update(_enum.__members__)
PROTOCOL_SSLv23 = PROTOCOL_TLS


class Purpose(_Enum):
    SERVER_AUTH = ("1.3.6.1.5.5.7.3.1", "serverAuth")
    CLIENT_AUTH = ("1.3.6.1.5.5.7.3.2", "clientAuth")

    @property
    def oid(self):
        return self.value[0]


_NODE = "TLS is the node's, which verifies servers with Mozilla's authorities and those of " \
    "`faasw serve --egress-ca FILE`"


class SSLError(OSError):
    """An error of TLS."""

    library = reason = None

    def __str__(self):
        return str(self.args[-1]) if self.args else ""


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
    verify_code = None

    @property
    def verify_message(self):
        return str(self)


CertificateError = SSLCertVerificationError
socket_error = OSError

DefaultVerifyPaths = _namedtuple(
    "DefaultVerifyPaths",
    "cafile capath openssl_cafile_env openssl_cafile openssl_capath_env openssl_capath",
)


def get_default_verify_paths():
    return DefaultVerifyPaths(None, None, "SSL_CERT_FILE", "", "SSL_CERT_DIR", "")


# Lists of public authorities, such as certifi's, are larger than this, in bytes, and are accepted
# silently: the node has such a list. Smaller files, of at most about eight certificates, are a
# script's own authorities.
_PUBLIC_LIST = 12_000


def _warn(what):
    _warnings.warn(f"{what} has no effect: {_NODE}", RuntimeWarning, stacklevel=3)


class SSLContext:
    """Settings of TLS. Those that the node decides have no effect, or raise."""

    sslsocket_class = sslobject_class = None

    def __init__(self, protocol=PROTOCOL_TLS):
        self.protocol = _SSLMethod(protocol)
        is_client = protocol == PROTOCOL_TLS_CLIENT
        self._check_hostname = is_client
        self._verify_mode = CERT_REQUIRED if is_client else CERT_NONE
        self._is_explicit = False
        self._alpn = ()
        self.options = Options(OP_ALL | OP_NO_SSLv3)
        self.verify_flags = VERIFY_X509_TRUSTED_FIRST
        self.minimum_version = TLSVersion.TLSv1_2
        self.maximum_version = TLSVersion.MAXIMUM_SUPPORTED
        self.post_handshake_auth = False
        self.hostname_checks_common_name = False
        self.keylog_filename = None
        self.sni_callback = None
        self.num_tickets = 2
        self.security_level = 2

    # Names are checked only if certificates are, which OpenSSL's module does, too.

    @property
    def check_hostname(self):
        return self._check_hostname

    @check_hostname.setter
    def check_hostname(self, value):
        self._check_hostname = bool(value)
        if value and self._verify_mode == CERT_NONE:
            self._verify_mode = CERT_REQUIRED

    @property
    def verify_mode(self):
        return self._verify_mode

    @verify_mode.setter
    def verify_mode(self, value):
        if value == CERT_NONE and self._check_hostname:
            raise ValueError(
                "Cannot set verify_mode to CERT_NONE when check_hostname is enabled."
            )
        self._verify_mode = VerifyMode(value)
        self._is_explicit = True

    def load_cert_chain(self, certfile, keyfile=None, password=None):
        raise SSLError(1, f"client certificates cannot be used: {_NODE}")

    def load_verify_locations(self, cafile=None, capath=None, cadata=None):
        if cafile is capath is cadata is None:
            raise TypeError("cafile, capath and cadata cannot be all omitted")
        if cafile is not None and _os.stat(cafile).st_size < _PUBLIC_LIST:
            _warn(f"the file of authorities {_os.fspath(cafile)!r}")
        if cadata is not None and len(cadata) < _PUBLIC_LIST:
            _warn("a list of authorities")
        if capath is not None:
            _warn(f"the folder of authorities {_os.fspath(capath)!r}")

    def load_default_certs(self, purpose=Purpose.SERVER_AUTH):
        """Has no effect: the node has them."""

    def set_default_verify_paths(self):
        """Has no effect: the node has its own."""

    def set_ciphers(self, ciphers):
        """Has no effect: the node selects them."""

    def set_ecdh_curve(self, name):
        """Has no effect: the node selects it."""

    def set_alpn_protocols(self, protocols):
        self._alpn = tuple(protocols)

    def set_npn_protocols(self, protocols):
        """Has no effect: ALPN has replaced it."""

    def get_ca_certs(self, binary_form=False):
        return []

    def get_ciphers(self):
        return []

    def cert_store_stats(self):
        return {"x509": 0, "crl": 0, "x509_ca": 0}

    def session_stats(self):
        return {}

    def _warn_of_what_is_ignored(self):
        if self._verify_mode == CERT_NONE and self._is_explicit:
            _warn("switching verification off")

    def _selected_protocol(self):
        return "http/1.1" if "http/1.1" in self._alpn else None

    def wrap_socket(
        self,
        sock,
        server_side=False,
        do_handshake_on_connect=True,
        suppress_ragged_eofs=True,
        server_hostname=None,
        session=None,
    ):
        return SSLSocket._create(self, sock, server_side, server_hostname)

    def wrap_bio(
        self, incoming, outgoing, server_side=False, server_hostname=None, session=None
    ):
        return SSLObject._create(self, incoming, outgoing, server_side, server_hostname)


def create_default_context(
    purpose=Purpose.SERVER_AUTH, *, cafile=None, capath=None, cadata=None
):
    if purpose == Purpose.CLIENT_AUTH:
        raise SSLError(1, f"a function is no TLS server: {_NODE}")
    context = SSLContext(PROTOCOL_TLS_CLIENT)
    if cafile or capath or cadata:
        context.load_verify_locations(cafile, capath, cadata)
    return context


def _create_unverified_context(
    protocol=PROTOCOL_TLS_CLIENT, *, cert_reqs=CERT_NONE, check_hostname=False, **_
):
    context = SSLContext(protocol)
    context.check_hostname = check_hostname
    context.verify_mode = cert_reqs
    return context


_create_default_https_context = create_default_context
_create_stdlib_context = _create_unverified_context


class _Session:
    """What a wrapped socket and an `SSLObject` report of a connection."""

    def getpeercert(self, binary_form=False):
        """Returns the name that the node verifies; the certificate itself stays there."""
        if binary_form:
            raise SSLError(1, f"the certificate of the server is not present: {_NODE}")
        name = self.server_hostname or ""
        kind = "IP Address" if _socket._literal(name) else "DNS"
        return {"subject": ((("commonName", name),),), "subjectAltName": ((kind, name),)}

    def selected_alpn_protocol(self):
        return self.context._selected_protocol()

    def selected_npn_protocol(self):
        return None

    def cipher(self):
        return None

    def shared_ciphers(self):
        return None

    def compression(self):
        return None

    def version(self):
        return None

    def get_channel_binding(self, cb_type="tls-unique"):
        return None

    def get_verified_chain(self):
        return []

    get_unverified_chain = get_verified_chain

    session = None
    session_reused = False


class SSLSocket(_Session, _socket.socket):
    """A socket whose requests are sent as `https`."""

    def __init__(self, *_, **__):
        raise TypeError("SSLSocket has no public constructor: use SSLContext.wrap_socket()")

    @classmethod
    def _create(cls, context, sock, server_side, server_hostname):
        if server_side:
            raise SSLError(1, f"a function is no TLS server: {_NODE}")
        if context.check_hostname and not server_hostname:
            raise ValueError("check_hostname requires server_hostname")
        if isinstance(sock, SSLSocket) or not isinstance(sock, _socket.socket):
            raise SSLError(1, f"TLS within TLS is not possible: {_NODE}")
        context._warn_of_what_is_ignored()
        wrapped = cls.__new__(cls)
        _socket.socket.__init__(wrapped, sock.family, sock.type, sock.proto)
        wrapped.context = context
        wrapped.server_side = False
        wrapped.server_hostname = server_hostname
        wrapped._timeout = sock.gettimeout()
        wrapped._peer = sock._peer
        conversation = sock._conversation
        if conversation is not None:
            conversation.begin_tls(server_hostname)
            wrapped._conversation = conversation
        sock.detach()
        return wrapped

    def connect(self, address):
        super().connect(address)
        self._conversation.begin_tls(self.server_hostname)

    @property
    def _sslobj(self):
        # httpcore takes it for what `SSLObject` is.
        return self

    def do_handshake(self, block=False):
        """Has no effect: the node begins TLS when a request is sent."""

    def read(self, len=1024, buffer=None):
        return self.recv(len) if buffer is None else self.recv_into(buffer, len)

    def write(self, data):
        return self.send(data)

    def pending(self):
        return 0

    def unwrap(self):
        raise SSLError(1, f"a connection stays encrypted: {_NODE}")


class MemoryBIO:
    """Bytes between an `SSLObject` and its transport."""

    def __init__(self):
        self._bytes = bytearray()
        self._is_ended = False

    @property
    def pending(self):
        return len(self._bytes)

    @property
    def eof(self):
        return self._is_ended and not self._bytes

    def read(self, n=-1):
        size = len(self._bytes) if n is None or n < 0 else n
        read = bytes(self._bytes[:size])
        del self._bytes[:size]
        return read

    def write(self, buf):
        if self._is_ended:
            raise SSLError(1, "cannot write() after write_eof()")
        self._bytes += buf
        return len(buf)

    def write_eof(self):
        self._is_ended = True


class SSLObject(_Session):
    """Passes bytes on as they are; its handshake has the following requests sent as `https`."""

    def __init__(self, *_, **__):
        raise TypeError("SSLObject has no public constructor: use SSLContext.wrap_bio()")

    @classmethod
    def _create(cls, context, incoming, outgoing, server_side, server_hostname):
        if server_side:
            raise SSLError(1, f"a function is no TLS server: {_NODE}")
        if context.check_hostname and not server_hostname:
            raise ValueError("check_hostname requires server_hostname")
        context._warn_of_what_is_ignored()
        made = cls.__new__(cls)
        if isinstance(server_hostname, bytes):
            server_hostname = server_hostname.decode()
        made.context, made.server_hostname, made.server_side = context, server_hostname, False
        made._incoming, made._outgoing, made._has_begun = incoming, outgoing, False
        return made

    def do_handshake(self):
        if not self._has_begun:
            from _faasw.conversation import handshake

            self._has_begun = True
            self._outgoing.write(handshake(self.server_hostname or ""))

    def read(self, len=1024, buffer=None):
        if not self._incoming.pending and not self._incoming._is_ended:
            raise SSLWantReadError(SSL_ERROR_WANT_READ, "The operation did not complete (read)")
        read = self._incoming.read(len)
        if buffer is None:
            return read
        size = read.__len__()
        buffer[:size] = read
        return size

    def write(self, data):
        return self._outgoing.write(data)

    def pending(self):
        return self._incoming.pending

    def unwrap(self):
        """Has no effect: the transport is closed next."""


SSLContext.sslsocket_class, SSLContext.sslobject_class = SSLSocket, SSLObject


def RAND_bytes(n):
    return _os.urandom(n)


def RAND_status():
    return True


def RAND_add(string, entropy):
    """Has no effect: the node's randomness needs no addition."""


def DER_cert_to_PEM_cert(der_cert_bytes):
    import base64

    text = base64.encodebytes(der_cert_bytes).decode()
    lines = [text.replace("\n", "")[at : at + 64] for at in range(0, len(text), 64)]
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return "\n".join((begin, *filter(None, lines), end, ""))


def PEM_cert_to_DER_cert(pem_cert_string):
    import base64

    body = pem_cert_string.strip()
    body = body.removeprefix("-----BEGIN CERTIFICATE-----")
    return base64.decodebytes(body.removesuffix("-----END CERTIFICATE-----").encode())


def cert_time_to_seconds(cert_time):
    import calendar
    import time

    return calendar.timegm(time.strptime(cert_time, "%b %d %H:%M:%S %Y GMT"))


def get_server_certificate(*_, **__):
    raise SSLError(1, f"the certificate of a server is not present: {_NODE}")


def get_protocol_name(protocol_code):
    return _SSLMethod(protocol_code).name


def __getattr__(name):
    raise AttributeError(f"ssl has no {name}: {_NODE}")
