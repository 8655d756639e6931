"""Parses Host and Origin headers, strictly.

Pure. Names are compared in lower case without the dot at the end, addresses in their short form,
IPv4 addresses inside of IPv6 ones as IPv4.
"""

import ipaddress
import re

from msgspec import Struct

_AUTHORITY = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)\.?)"
    r"(?::(?P<port>[0-9]{1,5}))?"
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}")
_LONGEST_NAME = 253
_HIGHEST_PORT = 65535
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Authority(Struct, frozen=True):
    """A host and its port, if one was given.

    >>> parse_authority("LOCALHOST.:8000")
    Authority(host='localhost', port=8000)
    >>> parse_authority("good.example@evil.example") is None
    True
    """

    host: str
    port: int | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine. Other names that resolve to it do not count."""
        return self.host == "localhost" or is_loopback_address(self.host)


class Origin(Struct, frozen=True):
    """The origin of a page; http and https always have a port.

    >>> parse_origin("https://App.example:443")
    Origin(scheme='https', host='app.example', port=443)
    """

    scheme: str
    host: str
    port: int | None


def parse_authority(text: str) -> Authority | None:
    """Parse a Host header; None if it is invalid."""
    found = _AUTHORITY.fullmatch(text)
    if found is None or len(text) > _LONGEST_NAME + 7:
        return None
    host = _address(found["v6"]) if found["v6"] else _name(found["name"])
    port = None if found["port"] is None else int(found["port"])
    if host is None or (port is not None and port > _HIGHEST_PORT):
        return None
    return Authority(host, port)


def parse_origin(text: str) -> Origin | None:
    """Parse an Origin header; None if it is invalid or ``null``."""
    scheme, separator, rest = text.partition("://")
    authority = parse_authority(rest)
    if not separator or authority is None or not _SCHEME.fullmatch(scheme):
        return None
    scheme = scheme.lower()
    port = authority.port if authority.port is not None else _DEFAULT_PORTS.get(scheme)
    return Origin(scheme, authority.host, port)


def is_same_origin(origin: Origin, scheme: str, host: Authority) -> bool:
    """Whether a page calls the server that it was loaded from.

    Behind a proxy that ends TLS, a request of an https page arrives as http, so that counts as the
    same. The reverse does not: a forged http page must not reach an https server.
    """
    scheme = {"ws": "http", "wss": "https"}.get(scheme, scheme)
    if origin.scheme not in _DEFAULT_PORTS or (origin.scheme, scheme) == ("http", "https"):
        return False
    port = host.port if host.port is not None else _DEFAULT_PORTS[origin.scheme]
    return (origin.host, origin.port) == (host.host, port)


def is_loopback_address(text: str) -> bool:
    """Whether it is a loopback address.

    >>> is_loopback_address("127.9.9.9"), is_loopback_address("::ffff:127.0.0.1")
    (True, True)
    >>> is_loopback_address("0.0.0.0")
    False
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _address(text: str) -> str | None:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    return str(address.ipv4_mapped or address)


def _name(text: str) -> str | None:
    return text.lower() if len(text) <= _LONGEST_NAME else None
