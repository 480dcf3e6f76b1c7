"""The door to the web: what a model names is fetched from public addresses, or not at all."""

# ruff: noqa: RUF001 - digits that are not ASCII are the point

import asyncio
import gzip
import socket
import sys
import time
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from chargehand.tools.calling import ToolFailed
from chargehand.tools.egress import LARGEST, Egress, Forbidden, check_url, gate, objection

Reply = Callable[[asyncio.StreamWriter], Awaitable[None]]
connected: list[object] = []


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "socket.connect":
        connected.append(arguments[1])


sys.addaudithook(_note)


class Resolver:
    """Gives these answers, one for each time it is asked, the last one for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self.answers[min(len(self.asked), len(self.answers)) - 1]


class Site:
    """A web server on a loopback address that answers in raw bytes, and remembers the requests."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.replies: dict[str, Reply] = {}
        self.port = 0

    def egress(self, *, resolve: Resolver | None = None, seconds: float = 5.0, allow: Sequence[str] = ()) -> Egress:
        """A door that may reach this server, and nothing else that is private."""
        private = frozenset({("127.0.0.1", self.port)})
        resolve = resolve or Resolver(["127.0.0.1"])
        return Egress(allow_private=private, resolve=resolve, seconds=seconds, allow=allow)

    def url(self, path: str, host: str = "site.test") -> str:
        return f"http://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(request)
            await self.replies[request.split()[1].decode()](writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # it was hung up on, which is what some tests want
        finally:
            writer.close()


@asynccontextmanager
async def site(address: str = "127.0.0.1", port: int = 0) -> AsyncGenerator[Site]:
    made = Site()
    server = await asyncio.start_server(made.serve, address, port)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made


def says(body: bytes, content_type: str = "text/plain", *headers: str, status: str = "200 OK") -> Reply:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", *headers]

    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    return reply


def redirects(location: str, status: str = "302 Found") -> Reply:
    return says(b"elsewhere", "text/plain", f"Location: {location}", status=status)


def dribbles(body: bytes, pause: float, head: bytes = b"") -> Reply:
    """Sends a piece again and again until nobody listens."""

    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n" + head + b"\r\n")
        for _ in range(100_000):
            writer.write(body)
            await writer.drain()
            await asyncio.sleep(pause)

    return reply


# --- spellings -------------------------------------------------------------------------------------------------------

SPELLINGS = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0x7f.0x0.0x0.0x1",
    "0x7f.1",
    "017700000001",
    "0177.0.0.1",
    "0177.1",
    "00000177.0.0.1",
    "127.0.0.1.",
    "127.0.0.1..",
    "127.000.000.001",
    "127.0.0.01",
    "127.0.0.0x1",
    "0",
    "0.0.0.0",
    "0x0",
    "00",
    "127.255.255.254",
    "6425673729",
    "127.0.0.257",
    "１２７.０.０.１",
    "①②⑦.⓪.⓪.①",
    "127。0。0。1",
    "127｡0｡0｡1",
    "127%2e0%2e0%2e1",
    "%31%32%37.0.0.1",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "a.localhost",
    "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ",
    "localhost.localdomain",
    "metadata.google.internal",
    "printer.local",
    "intranet",
    "[::1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]",
    "[::127.0.0.1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]",
    "[2001:0:7f00:1::]",
    "[fe80::1]",
    "[fe80::1%25lo]",
    "[fe80::1%lo]",
    "[::1%25lo]",
    "[fec0::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[ff02::1]",
    "[2001:db8::1]",
    "[3fff::1]",
    "[100::1]",
    "[5f00::1]",
    "[2001:4860::5efe:127.0.0.1]",
    "[127.0.0.1]",
    "[v1.127]",
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "[::ffff:a9fe:a9fe]",
    "169.254.170.2",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "[::ffff:100.64.0.1]",
    "198.18.0.1",
    "192.0.2.1",
    "198.51.100.1",
    "203.0.113.1",
    "192.88.99.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
]


@pytest.mark.parametrize("host", SPELLINGS)
async def test_no_spelling_of_a_private_address_is_contacted(host: str) -> None:
    async with site() as canary:
        connected.clear()
        # A resolver that, like the system's, would make loopback of anything; and the port is not what stops it.
        door = Egress(ports=frozenset({canary.port}), resolve=Resolver(["127.0.0.1"]), seconds=2)
        with pytest.raises(Forbidden):
            await door.get(f"http://{host}:{canary.port}/")
        assert canary.requests == []
        assert connected == []


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com@127.0.0.1:{port}/",
        "http://127.0.0.1:{port}@example.com/",
        "http://user:pass@example.com/",
        "http://example.com:80@127.0.0.1:{port}/",
        "http://example.com\\@127.0.0.1:{port}/",
        "http:\\\\127.0.0.1:{port}\\",
        "http:/127.0.0.1:{port}/",
        "http:127.0.0.1:{port}",
        "//127.0.0.1:{port}/",
        "http:///127.0.0.1:{port}/",
        "http://127.0.0.1:{port}#@example.com/",
        "http://example.com#@127.0.0.1:{port}/x y",
        " http://127.0.0.1:{port}/",
        "http://exam\tple.com/",
        "http://127.0.0.1\n:{port}/",
        "http://127.0.0.1:{port}/\r\nHost: x",
        "http://\x00127.0.0.1/",
        "file:///etc/passwd",
        "ftp://127.0.0.1:{port}/",
        "gopher://127.0.0.1:{port}/_x",
        "data:text/plain,x",
        "unix:/run/x",
        "javascript:alert(1)",
        "http://",
        "https://",
        "",
        "127.0.0.1:{port}",
        "http://[::1",
        "http://::1]:{port}/",
        "http://example.com:99999/",
        "http://example.com:-1/",
        "http://example.com:８０/",
        "http://example.com:22/",
        "http://example.com:{port}/",
        "http://a..b.com/",
        "http://-a.com/",
        "http://" + "a" * 64 + ".com/",
        "http://example.com/" + "a" * 5000,
        "http://*.example.com/",
        "http://exa%6dple.com/",
        "http://\ud800.com/",
    ],
)
async def test_a_url_that_can_be_read_in_two_ways_is_refused(url: str) -> None:
    async with site() as canary:
        connected.clear()
        resolve = Resolver(["127.0.0.1"])
        with pytest.raises(Forbidden):
            await Egress(resolve=resolve, seconds=2).get(url.replace("{port}", str(canary.port)))
        assert (canary.requests, connected, resolve.asked) == ([], [], [])


async def test_a_name_that_resolves_to_a_private_address_is_refused() -> None:
    private = [
        "127.0.0.1",
        "::1",
        "fe80::1%lo",
        "10.0.0.5",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "fd00:ec2::254",
    ]
    for address in private:
        connected.clear()
        with pytest.raises(Forbidden, match="not on the public internet") as caught:
            await Egress(resolve=Resolver([address])).get("http://looks.public.test/")
        assert connected == []
        assert address not in str(caught.value)


async def test_one_private_address_among_public_ones_spoils_the_name() -> None:
    async with site() as canary:
        connected.clear()
        door = canary.egress(resolve=Resolver(["127.0.0.1", "127.0.0.2"]))
        with pytest.raises(Forbidden):
            await door.get(canary.url("/"))
        assert connected == []


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "1.1.1.1",
        "93.184.215.14",
        "2606:4700::1111",
        "2a00:1450:4001::8b",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
    ],
)
def test_public_addresses_are_public(address: str) -> None:
    assert objection(address) == ""


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("https://Example.COM", "https://example.com/"),
        ("http://example.com:80/a?b=c#d", "http://example.com/a?b=c"),
        ("https://example.com.:443/", "https://example.com/"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("http://8.8.8.8/x", "http://8.8.8.8/x"),
        ("http://[2606:4700::1111]/", "http://[2606:4700::1111]/"),
    ],
)
def test_a_plain_url_means_one_target(url: str, meant: str) -> None:
    assert check_url(url).url == meant


# --- names that change, and redirects ---------------------------------------------------------------------------------


async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    async with site() as public, site("127.0.0.2", public.port) as canary:
        public.replies["/"] = says(b"hello")
        resolve = Resolver(["127.0.0.1"], ["127.0.0.2"])
        door = public.egress(resolve=resolve)
        connected.clear()
        page = await door.get(public.url("/"))
        assert page.text == "hello"
        assert resolve.asked == ["site.test"]
        assert connected == [("127.0.0.1", public.port)]
        assert f"Host: site.test:{public.port}\r\n".encode() in public.requests[0]
        with pytest.raises(Forbidden):  # and the next time it is asked it has changed
            await door.get(public.url("/"))
        assert canary.requests == []


def test_no_socket_is_made_for_an_address_that_was_not_checked() -> None:
    make = gate(["8.8.8.8", "2606:4700::1111"], 443)
    stream = (socket.SOCK_STREAM, 6, "")
    for place in [("127.0.0.1", 443), ("8.8.8.8", 80), ("8.8.8.9", 443)]:
        with pytest.raises(OSError, match="was not checked"):
            make((socket.AF_INET, *stream, place))
    make((socket.AF_INET, *stream, ("8.8.8.8", 443))).close()
    make((socket.AF_INET6, *stream, ("2606:4700:0::1111", 443, 0, 0))).close()


async def test_encrypted_connections_name_the_host_and_not_the_address() -> None:
    hello: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello.append(await reader.read(4096))
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        door = Egress(allow_private=frozenset({("127.0.0.1", port)}), resolve=Resolver(["127.0.0.1"]), seconds=5)
        with pytest.raises(ToolFailed, match="could not be fetched"):
            await door.get(f"https://site.test:{port}/")
    assert b"site.test" in hello[0]


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://127.0.0.2:{port}/",
        "//127.0.0.2:{port}/",
        "http://2130706434:{port}/",
        "http://[::1]:{port}/",
        "file:///etc/passwd",
        "http://user@site.test:{port}/",
        "http://other.test:81/",
        "\\\\127.0.0.2\\",
    ],
)
async def test_a_redirect_is_checked_like_a_first_request(location: str) -> None:
    async with site() as public, site("127.0.0.2", public.port) as canary:
        public.replies["/"] = redirects(location.replace("{port}", str(public.port)))
        connected.clear()
        with pytest.raises(ToolFailed):
            await public.egress().get(public.url("/"))
        assert connected == [("127.0.0.1", public.port)]
        assert canary.requests == []


async def test_a_redirect_to_a_name_that_is_private_is_refused() -> None:
    async with site() as public, site("127.0.0.2", public.port) as canary:
        public.replies["/"] = redirects(public.url("/", "inner.test"))
        with pytest.raises(Forbidden):
            await public.egress(resolve=Resolver(["127.0.0.1"], ["127.0.0.2"])).get(public.url("/"))
        assert canary.requests == []


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See", "307 Temporary", "308 Permanent"])
async def test_redirects_are_followed(status: str) -> None:
    async with site() as public:
        public.replies = {"/": redirects("/next?a=b", status), "/next?a=b": says(b"there")}
        page = await public.egress().get(public.url("/"))
        assert (page.url, page.text) == (public.url("/next?a=b"), "there")


async def test_redirects_end_after_five() -> None:
    async with site() as public:
        public.replies["/"] = redirects("/")
        with pytest.raises(ToolFailed, match="more than 5 redirects"):
            await public.egress().get(public.url("/"))
        assert len(public.requests) == 6


async def test_only_the_hosts_on_the_list_are_fetched() -> None:
    async with site() as public:
        public.replies = {"/": says(b"yes"), "/away": redirects(public.url("/", "evil.test"))}
        door = public.egress(allow=["site.test", "*.good.test"])
        assert (await door.get(public.url("/"))).text == "yes"
        assert (await door.get(public.url("/", "a.b.good.test"))).text == "yes"
        for host in ("evil.test", "good.test", "site.test.evil.test", "notgood.test", "xsite.test"):
            with pytest.raises(Forbidden, match="the only hosts allowed are"):
                await door.get(public.url("/", host))
        with pytest.raises(Forbidden, match="the only hosts allowed are"):
            await door.get(public.url("/away"))
        assert len(public.requests) == 3


async def test_being_on_the_list_makes_no_address_public() -> None:
    connected.clear()
    with pytest.raises(Forbidden):
        await Egress(allow=["inner.test"], resolve=Resolver(["10.1.2.3"])).get("http://inner.test/")
    with pytest.raises(Forbidden):
        await Egress(allow=["10.1.2.3"]).get("http://10.1.2.3/")
    assert connected == []


# --- bodies ----------------------------------------------------------------------------------------------------------


async def test_a_packed_body_is_unpacked_no_further_than_is_taken() -> None:
    bomb = gzip.compress(bytes(100 << 20))
    async with site() as public:
        public.replies["/"] = says(bomb, "text/plain", "Content-Encoding: gzip")
        tracemalloc.start()
        try:
            page = await public.egress().get(public.url("/"))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert (len(page.text), page.cut) == (LARGEST, True)
    assert peak < 16 << 20


async def test_an_endless_body_is_cut() -> None:
    async with site() as public:
        public.replies["/"] = dribbles(b"x" * 65536, 0)
        page = await public.egress().get(public.url("/"))
    assert (len(page.text), page.cut) == (LARGEST, True)


async def test_nothing_is_read_after_the_end_of_a_packed_body() -> None:
    packed = gzip.compress(b"all of it")
    async with site() as public:
        public.replies["/"] = dribbles(packed + b"x" * 65536, 0, b"Content-Encoding: gzip\r\n")
        page = await public.egress().get(public.url("/"))
        public.replies["/"] = says(packed[:-4], "text/plain", "Content-Encoding: gzip")
        short = await public.egress().get(public.url("/"))
    assert (page.text, page.cut) == ("all of it", False)
    assert short.cut


@pytest.mark.parametrize("size", [LARGEST - 1, LARGEST, LARGEST + 1])
@pytest.mark.parametrize("packed", [False, True])
async def test_the_largest_body_is_not_cut_and_the_next_is(size: int, packed: bool) -> None:
    body = b"x" * size
    reply = says(gzip.compress(body), "text/plain", "Content-Encoding: gzip") if packed else says(body)
    async with site() as public:
        public.replies["/"] = reply
        page = await public.egress().get(public.url("/"))
    assert (len(page.text), page.cut) == (min(size, LARGEST), size > LARGEST)


async def test_a_slow_body_runs_out_of_time() -> None:
    async with site() as public:
        public.replies["/"] = dribbles(b"x", 0.05)
        began = time.monotonic()
        with pytest.raises(ToolFailed, match=r"did not arrive within 0\.5 s"):
            await public.egress(seconds=0.5).get(public.url("/"))
        assert time.monotonic() - began < 10


async def test_a_silent_server_and_a_slow_lookup_run_out_of_time() -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1.5)

    async def slow(host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(30)
        return []

    async with site() as public:
        public.replies["/"] = silent
        with pytest.raises(ToolFailed):
            await public.egress(seconds=0.3).get(public.url("/"))
    with pytest.raises(ToolFailed, match="did not arrive"):
        await Egress(resolve=slow, seconds=0.3).get("http://site.test/")


@pytest.mark.parametrize(
    "reply",
    [
        says(b"no", status="404 Not Found"),
        says(b"no", status="500 Oops"),
        says(b"\x89PNG", "image/png"),
        says(b"x", "application/octet-stream"),
        says(b"x", ""),
        says(b"not gzip", "text/plain", "Content-Encoding: gzip"),
        says(b"x", "text/plain", "Content-Encoding: br"),
        says(b"x", "text/plain", "X: " + "y" * 100_000),
        redirects("http://[broken/"),
    ],
)
async def test_what_is_not_a_text_is_a_failure_in_words(reply: Reply) -> None:
    async with site() as public:
        public.replies["/"] = reply
        with pytest.raises(ToolFailed, match="http"):
            await public.egress().get(public.url("/"))


@pytest.mark.parametrize("raw", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"])
async def test_a_broken_server_is_a_failure_in_words(raw: bytes) -> None:
    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(raw)

    async with site() as public:
        public.replies["/"] = reply
        with pytest.raises(ToolFailed):
            await public.egress().get(public.url("/"))


async def test_an_unknown_host_is_a_failure_in_words() -> None:
    async def unknown(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(-2, "Name or service not known")

    for resolve in (unknown, Resolver([])):
        with pytest.raises(ToolFailed, match=r"there is no host 'gone\.test'"):
            await Egress(resolve=resolve).get("http://gone.test/")


@pytest.mark.parametrize(
    ("content_type", "body", "text"),
    [
        ("text/plain; charset=iso-8859-1", b"caf\xe9", "café"),
        ("text/plain", "café".encode(), "café"),
        ("text/plain; charset=utf-8", b"\xff", "\N{REPLACEMENT CHARACTER}"),
        ("text/plain; charset=utf-7", b"+AGE-", "+AGE-"),
        ("text/plain; charset=rot13", b"abc", "abc"),
        ("text/plain; charset=nonsense", b"abc", "abc"),
        ("application/ld+json", b"{}", "{}"),
    ],
)
async def test_text_is_decoded_as_it_says_where_that_is_harmless(content_type: str, body: bytes, text: str) -> None:
    async with site() as public:
        public.replies["/"] = says(body, content_type)
        assert (await public.egress().get(public.url("/"))).text == text


async def test_no_cookie_and_no_secret_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site() as public:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.2:1")
        public.replies = {
            "/": says(b"", "text/plain", "Set-Cookie: a=b", "Location: /2", status="302 Found"),
            "/2": says(b"x"),
        }
        await public.egress().get(public.url("/"))
        names = {line.split(b":")[0].lower() for line in public.requests[1].splitlines()[1:] if line}
    assert names - {b"connection"} == {b"host", b"user-agent", b"accept", b"accept-encoding"}
