"""Host and Origin headers are read strictly."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.server.auth.hosts import (
    Authority,
    Origin,
    is_loopback_address,
    is_same_origin,
    parse_authority,
    parse_origin,
)

LABELS = st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True)
NAMES = st.lists(LABELS, min_size=1, max_size=4).map(".".join)
PORTS = st.none() | st.integers(0, 65535)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost", "localhost", None),
        ("LocalHost.", "localhost", None),
        ("example.com.:8443", "example.com", 8443),
        ("[::1]:80", "::1", 80),
        ("[0:0:0:0:0:0:0:1]", "::1", None),
        ("[::FFFF:127.0.0.1]", "127.0.0.1", None),
        ("127.0.0.1:0", "127.0.0.1", 0),
    ],
)
def test_a_host_is_brought_into_one_form(text: str, host: str, port: int | None) -> None:
    assert parse_authority(text) == Authority(host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "localhost ",
        " localhost",
        "localhost:",
        "localhost:65536",
        "localhost:-1",
        "localhost:8000:9000",
        "localhost:٨٠",
        "localhost..",
        ".localhost",
        "a..b",
        "localhost@evil.example",
        "evil.example#localhost",
        "evil.example/localhost",
        "evil.example\\localhost",
        "evil.example?localhost",
        "localhost, evil.example",
        "localhost\nX: y",
        "localhost\0",
        "::1",
        "[::1",
        "[::1%25lo]",
        "[fe80::1%eth0]",
        "[127.0.0.1]",
        "[::1]evil.example",
        "[::1].evil.example",
        "[]",
        "bücher.example",
        "%6cocalhost",
        "a" * 254,
        "1" * 100_000,
    ],
)
def test_what_is_not_plainly_a_host_is_none(text: str) -> None:
    assert parse_authority(text) is None


@given(NAMES, PORTS)
def test_every_plain_name_is_read_and_its_case_and_last_dot_do_not_count(
    name: str, port: int | None
) -> None:
    end = "" if port is None else f":{port}"
    assert parse_authority(name + end) == Authority(name.lower(), port)
    assert parse_authority(name.swapcase() + "." + end) == Authority(name.lower(), port)


@given(st.ip_addresses(v=6), PORTS)
def test_every_ipv6_address_is_read_in_brackets_only(
    address: ipaddress.IPv6Address, port: int | None
) -> None:
    end = "" if port is None else f":{port}"
    expected = Authority(str(address.ipv4_mapped or address), port)
    assert parse_authority(f"[{address.exploded}]{end}") == expected
    assert parse_authority(f"{address.exploded}{end}") is None


@given(st.text(max_size=40))
def test_no_text_breaks_the_reading_and_what_is_read_is_stable(text: str) -> None:
    found = parse_authority(text)
    if found is not None:
        host = f"[{found.host}]" if ":" in found.host else found.host
        again = host if found.port is None else f"{host}:{found.port}"
        assert parse_authority(again) == found
        assert not set(found.host) & set("@/\\?# \t\r\n,%")
    origin = parse_origin(text)
    assert origin is None or "://" in text


@given(NAMES, st.sampled_from("@/\\?#, \t%\0"), NAMES)
def test_two_names_in_one_header_are_none(first: str, between: str, second: str) -> None:
    assert parse_authority(first + between + second) is None
    assert parse_origin(f"https://{first}{between}{second}") is None


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("http://localhost", Origin("http", "localhost", 80)),
        ("HTTPS://App.Example.:443", Origin("https", "app.example", 443)),
        ("http://[::1]:8000", Origin("http", "::1", 8000)),
        ("chrome-extension://abcdef", Origin("chrome-extension", "abcdef", None)),
    ],
)
def test_an_origin_is_brought_into_one_form(text: str, origin: Origin) -> None:
    assert parse_origin(text) == origin


@pytest.mark.parametrize(
    "text",
    ["null", "NULL", "", "localhost", "//localhost", "http://", "http:localhost", "file://",
     "http://localhost/", "http://a@localhost", "http://localhost http://evil.example",
     "https//localhost", "://localhost", " http://localhost"],
)  # fmt: skip
def test_what_is_not_plainly_an_origin_is_none(text: str) -> None:
    assert parse_origin(text) is None


@pytest.mark.parametrize(
    ("origin", "scheme", "host", "same"),
    [
        ("http://localhost:8000", "http", "localhost:8000", True),
        ("http://localhost:8000", "ws", "localhost:8000", True),
        ("http://localhost", "http", "localhost:80", True),
        ("https://a.example", "https", "a.example", True),
        ("https://a.example", "wss", "a.example:443", True),
        ("https://a.example", "http", "a.example", True),
        ("http://a.example", "https", "a.example", False),
        ("http://a.example", "wss", "a.example:80", False),
        ("http://localhost:8001", "http", "localhost:8000", False),
        ("http://127.0.0.1:8000", "http", "localhost:8000", False),
        ("http://a.example.evil.example", "http", "a.example", False),
        ("ftp://a.example", "http", "a.example", False),
        ("chrome-extension://a", "http", "a", False),
    ],
)
def test_a_page_calls_its_own_server(origin: str, scheme: str, host: str, same: bool) -> None:
    page, server = parse_origin(origin), parse_authority(host)
    assert page is not None
    assert server is not None
    assert is_same_origin(page, scheme, server) is same


@pytest.mark.parametrize("text", ["localhost", "127.0.0.1", "127.255.0.9:1", "[::1]", "LOCALHOST."])
def test_names_of_this_machine_are_loopback(text: str) -> None:
    found = parse_authority(text)
    assert found is not None
    assert found.is_loopback


@pytest.mark.parametrize(
    "text",
    ["example.com", "localhost.evil.example", "127.0.0.1.evil.example", "0.0.0.0", "127.1",
     "2130706433", "0x7f000001", "127.0.0.01", "[::]", "[::ffff:8.8.8.8]", "10.0.0.1"],
)  # fmt: skip
def test_other_names_are_not(text: str) -> None:
    found = parse_authority(text)
    assert found is not None
    assert not found.is_loopback


def test_an_address_that_is_none_is_not_loopback() -> None:
    assert not is_loopback_address("testclient")
    assert not is_loopback_address("")
