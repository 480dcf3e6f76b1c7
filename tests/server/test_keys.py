"""Tokens: made once, kept as a hash, refused from the moment they are revoked or have expired."""

import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import httpx
import msgspec
import pytest

from chargehand.cli.main import main
from chargehand.errors import Invalid, StoreError, Unknown
from chargehand.server.middleware.gate import Keyring, first_token, open_keys, token_of
from chargehand.server.middleware.keys import Allowed, create_key, revoke_key
from chargehand.server.settings import ServerLimits, ServerSettings, check, key_store_url
from tests.server.guarded import guarded

OPERATOR = "an-operators-own-token-0123456789"
MANY = ServerLimits(strangers=100_000)


def made_in(data: Path, tenant: str = "main", scope: Allowed = "run", expires: float | None = None) -> tuple[str, str]:
    """A stored key: its id and its token."""
    key, token = create_key(tenant, "for a test", scope, time.time(), expires)
    with closing(open_keys(key_store_url(data))) as file:
        file.add(key)
    return key.id, token


def test_a_token_has_a_readable_part_and_256_secret_bits_and_only_its_hash_is_kept(tmp_path: Path) -> None:
    which, token = made_in(tmp_path)
    assert token.startswith(f"ch_{which}_")
    assert len(token.split("_", 2)[2]) == 43
    secret = token.split("_", 2)[2].encode()
    assert all(secret not in file.read_bytes() for file in tmp_path.iterdir())
    assert Path(key_store_url(tmp_path)).stat().st_mode & 0o077 == 0


def test_the_first_token_is_made_once_and_only_where_there_is_no_other_way_in(tmp_path: Path) -> None:
    settings = ServerSettings(tmp_path)
    token = first_token(settings, 1.0)
    assert token is not None
    assert first_token(settings, 2.0) is None
    assert first_token(ServerSettings(tmp_path / "other", token=OPERATOR), 1.0) is None
    assert first_token(ServerSettings(tmp_path / "open", unlocked=True), 1.0) is None
    with guarded(settings) as url:
        assert httpx.get(f"{url}/who", headers={"Authorization": f"Bearer {token}"}).json()["tenant"] == "main"


def test_a_token_comes_in_as_bearer_or_as_the_password_of_anybody(tmp_path: Path) -> None:
    which, token = made_in(tmp_path, "lab")
    with guarded(ServerSettings(tmp_path, token=OPERATOR)) as url, httpx.Client(base_url=url) as client:
        for told in ({"headers": {"Authorization": f"bearer {token}"}}, {"auth": ("", token)}, {"auth": ("x", token)}):
            said = client.get("/who", **told).json()  # pyright: ignore[reportArgumentType] - any of the three
            assert (said["tenant"], said["key"]) == ("lab", which)
        assert client.get("/who", auth=("", OPERATOR)).json()["tenant"] == "main"


def test_nothing_else_comes_in(tmp_path: Path) -> None:
    which, token = made_in(tmp_path)
    with guarded(ServerSettings(tmp_path, token=OPERATOR, limits=MANY)) as url, httpx.Client(base_url=url) as client:
        for said in (
            "",
            token,
            f"Token {token}",
            f"Bearer {token}x",
            f"Bearer {token[:-1]}",
            f"Bearer ch_{which}_",
            "Bearer",
            f"Bearer {token.upper()}",
            f"Digest {token}",
            "Basic !!!",
            "Basic",
            f"Basic {token}",
            f"Bearer  x{token}",
        ):
            assert client.get("/who", headers={"Authorization": said}).status_code == 401, said
        assert client.get(f"/who?token={token}&api_key={token}").status_code == 401
        twice = [("Authorization", f"Bearer {token}"), ("Authorization", "Bearer x")]
        assert client.get("/who", headers=twice).status_code == 400


def test_a_thousand_hostile_headers_are_refused_without_a_question_to_the_store(tmp_path: Path) -> None:
    made_in(tmp_path)
    chance = random.Random(7)
    bits = [
        "' OR 1=1 --",
        "\\x00",
        "%00",
        "ch_",
        "Bearer",
        "Basic",
        "=",
        "{}",
        "$",
        "é",
        "A" * 300,
        "../",
        "\t",
        ";",
        "🗝",
    ]
    with guarded(ServerSettings(tmp_path, token=OPERATOR, limits=MANY)) as url, httpx.Client(base_url=url) as client:
        for _ in range(1000):
            said = "".join(chance.choice(bits) for _ in range(chance.randint(1, 12))).strip()
            kind = chance.choice(("Bearer", "Basic ", "", "bearer ch_deadbeef_"))
            header = {"Authorization": f"{kind}{said}".strip().encode()}
            assert client.get("/who", headers=header).status_code == 401  # pyright: ignore[reportArgumentType] - bytes are fine
        assert client.get("/who", auth=("", OPERATOR)).status_code == 200


def test_a_bad_token_takes_as_long_as_a_good_one(tmp_path: Path) -> None:
    token = create_key("main", "", "run", 1.0)[1]
    keys = Keyring(ServerSettings(tmp_path, token=OPERATOR))
    headers = [f"Bearer {one}".encode() for one in (OPERATOR, f"{OPERATOR[:-1]}x", token)]
    times: dict[bytes, list[float]] = {header: [] for header in headers}
    for _ in range(2000):
        for header in headers:  # in turn, so that a machine that is slow for a while is slow for all of them
            began = time.perf_counter()
            keys.caller(header)
            times[header].append(time.perf_counter() - began)
    shortest = [sorted(found)[200] for found in times.values()]
    assert max(shortest) < 3 * min(shortest)


def test_a_revoked_token_is_refused_at_once_and_its_streams_end(tmp_path: Path) -> None:
    which, token = made_in(tmp_path)
    _, other = made_in(tmp_path)
    headers = {"Authorization": f"Bearer {token}"}
    with guarded(ServerSettings(tmp_path, token=OPERATOR)) as url, httpx.Client(base_url=url, timeout=10) as client:
        assert client.get("/who", headers=headers).status_code == 200
        with client.stream("GET", "/stream", headers=headers) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "data: 0"
            with client.stream("GET", "/stream", headers={"Authorization": f"Bearer {other}"}) as unharmed:
                rest = unharmed.iter_lines()
                assert next(rest) == "data: 0"
                assert main(["tokens", "revoke", which, "--data", str(tmp_path)]) == 0
                assert client.get("/who", headers=headers).status_code == 401
                began = time.monotonic()
                assert [line for line in lines if line] == []
                assert time.monotonic() - began < 8
                assert client.get("/who", headers={"Authorization": f"Bearer {other}"}).status_code == 200


def test_an_expired_token_is_refused_and_its_streams_end(tmp_path: Path) -> None:
    clock = [1000.0]  # it stands still while the server starts, however long that takes
    _, token = made_in(tmp_path, expires=1000.2)
    headers = {"Authorization": f"Bearer {token}"}
    with (
        guarded(ServerSettings(tmp_path, token=OPERATOR), now=lambda: clock[0]) as url,
        httpx.Client(base_url=url, timeout=10) as client,
    ):
        with client.stream("GET", "/stream", headers=headers) as stream:
            assert [line for line in stream.iter_lines() if line] == ["data: 0"]
        assert client.get("/who", headers=headers).status_code == 200
        clock[0] = 1000.2
        assert client.get("/who", headers=headers).status_code == 401


def test_a_token_that_is_made_while_the_server_runs_is_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with guarded(ServerSettings(tmp_path, token=OPERATOR)) as url:
        words = ["tokens", "create", "--tenant", "lab", "--scope", "read", "--name", "board", "--expires", "30d"]
        assert main([*words, "--data", str(tmp_path)]) == 0
        token = capsys.readouterr().out.strip()
        assert httpx.get(f"{url}/who", headers={"Authorization": f"Bearer {token}"}).json()["tenant"] == "lab"
    assert main(["tokens", "list", "--json", "--data", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    (told,) = msgspec.json.decode(said)
    assert (told["tenant"], told["scope"], told["name"]) == ("lab", "read", "board")
    assert token.split("_", 2)[2] not in said


def test_the_command_line_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["--data", str(tmp_path)]
    assert main(["tokens", "create", "--tenant", "../etc", *data]) == 2
    assert main(["tokens", "revoke", "nobody", *data]) == 2
    assert main(["tokens", *data]) == 0
    out, err = capsys.readouterr()
    assert "no name for a tenant" in err
    assert "there are no tokens in " in err
    assert main(["tokens", "create", *data]) == 0
    assert main(["tokens", "revoke", "nobody", *data]) == 2
    assert "there is no token 'nobody'" in capsys.readouterr().err
    assert "there are no tokens in" in out
    with pytest.raises(SystemExit):
        main(["tokens", "create", "--expires", "soon", *data])


def test_a_file_that_is_no_key_file_is_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(key_store_url(tmp_path))) as other:
        other.execute("CREATE TABLE diary (day TEXT)")
    with pytest.raises(StoreError, match="not a key file"):
        open_keys(key_store_url(tmp_path))
    with closing(open_keys(tmp_path / "x" / "keys.db")) as file, pytest.raises(Unknown):
        revoke_key(file, "none", 1.0)


def test_what_holds_the_token_in_a_header_is_found_and_nothing_else() -> None:
    assert token_of(b"Bearer abc") == b"abc"
    assert token_of(b"Basic OmFiYw==") == b"abc"
    assert [token_of(one) for one in (b"", b"Bearer", b"abc", b"Basic YWJj", b"Bearer " + b"x" * 1000)] == [b""] * 5


def test_a_server_that_nobody_should_start_is_refused(tmp_path: Path) -> None:
    check(ServerSettings(tmp_path, host="0.0.0.0", hosts=("box.example", "[::1]:80", "box:8283"), token=OPERATOR))
    check(ServerSettings(tmp_path, unlocked=True))
    for wrong in (
        ServerSettings(tmp_path, host="0.0.0.0", unlocked=True),
        ServerSettings(tmp_path, host="192.168.1.4", unlocked=True),
        ServerSettings(tmp_path, hosts=("*",)),
        ServerSettings(tmp_path, hosts=("*.example",)),
        ServerSettings(tmp_path, hosts=("",)),
        ServerSettings(tmp_path, hosts=("http://box",)),
        ServerSettings(tmp_path, token="short"),
        ServerSettings(tmp_path, port=70000),
        ServerSettings(tmp_path, token="has a space in it, which no header can hold"),
    ):
        with pytest.raises(Invalid):
            check(wrong)
    assert OPERATOR not in repr(ServerSettings(tmp_path, token=OPERATOR, secrets=(OPERATOR,)))
