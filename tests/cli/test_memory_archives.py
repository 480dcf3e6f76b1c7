"""`chargehand memory` on archives."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.cli.memories import TEAM, desk, done, here_and_now, told
from tests.cli.terminal import Terminal
from tests.cli.test_bad_input import refused


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return desk(tmp_path)


def passages(folder: Path, archive: str, *words: str) -> list[dict[str, Any]]:
    """What is in an archive, in the order it came."""
    return [json.loads(line) for line in done(folder, "export", archive, *words).splitlines()]


def test_texts_and_files_are_added_once_and_found_again(here: Path) -> None:
    assert "findings: 1 new passage" in done(here, "add", "findings", "The", "cat", "sat", "on", "the", "mat.")
    assert "0 new passages, 1 were there already" in done(here, "add", "findings", "The cat sat on the mat.")
    (here / "texts").mkdir()
    (here / "texts" / "dog.md").write_text("The dog lay on the rug.\n")
    (here / "bird.log").write_text("The bird sat in the tree.\n")
    done(here, "add", "findings", "texts", "bird.log", "--tag", "animal", "--tag", "seen")
    done(here, "add", "findings", "-", "--source", "the zoo", given="The lion slept.\n")
    found = told(here, "search", "findings", "who", "sat?")
    assert {one["passage"]["text"].strip() for one in found} == {"The cat sat on the mat.", "The bird sat in the tree."}
    assert found[0]["why"]
    assert found[0]["score"] >= found[1]["score"] > 0
    sources = {one["origin"].get("source", ""): one["tags"] for one in passages(here, "findings")}
    assert sources == {"": [], "texts/dog.md": ["animal", "seen"], "bird.log": ["animal", "seen"], "the zoo": []}


def test_a_search_keeps_to_what_was_asked(here: Path) -> None:
    done(here, "add", "findings", "red apple", "--tag", "fruit", "--tag", "red")
    done(here, "add", "findings", "red brick", "--tag", "red", "--source", "yard")

    def found(*words: str) -> set[str]:
        return {one["passage"]["text"] for one in told(here, "search", "findings", "red", *words)}

    assert found() == {"red apple", "red brick"}
    assert found("--tag", "fruit", "--tag", "red", "--match", "all") == {"red apple"}
    assert found("--tag", "fruit", "--tag", "red") == {"red apple", "red brick"}
    assert found("--source", "yard") == {"red brick"}
    assert found("--until", "2020-01-01") == set()
    assert found("--since", "1h") == {"red apple", "red brick"}
    assert len(found("--limit", "1")) == 1
    said = done(here, "search", "findings", "apple")
    assert "red apple" in said
    assert "words were compared, not meanings" in said
    assert done(here, "search", "findings", "zebra").startswith("nothing found")


def test_archives_are_listed_with_their_sizes(here: Path) -> None:
    done(here, "add", "findings", "one fact")
    done(here, "add", "findings", "another fact")
    (findings, papers) = told(here, "archives")
    assert (findings["passages"], findings["with_vectors"], papers["passages"]) == (2, 0, 0)
    assert "findings  2         0        words" in done(here, "archives")
    refused(here_and_now(here, "search", "notes", "x"), "'notes' is a block, not an archive")


def test_what_is_exported_can_be_imported_elsewhere(here: Path) -> None:
    done(here, "add", "findings", "one", "--tag", "t", "--source", "book")
    done(here, "add", "findings", "two")
    done(here, "add", "papers", "three")
    assert "written: all.jsonl, 3 passages" in done(here, "export", "--all", "-o", "all.jsonl")
    lines = [json.loads(line) for line in (here / "all.jsonl").read_text().splitlines()]
    assert [(one["archive"], one["text"]) for one in lines] == [
        ("findings", "one"),
        ("findings", "two"),
        ("papers", "three"),
    ]
    assert [json.loads(line)["text"] for line in done(here, "export", "papers").splitlines()] == ["three"]
    said = done(here, "import", "findings", "all.jsonl", "--memory", "other.db")
    assert "findings: 2 new passages, 1 of other archives left out" in said
    said = done(here, "import", "findings", "all.jsonl", "--memory", "other.db")
    assert "0 new passages, 2 were there already" in said
    (one, _) = passages(here, "findings", "--memory", "other.db")
    first = passages(here, "findings")[0]
    assert one == first


def test_a_copy_beside_the_original_has_ids_of_its_own(here: Path) -> None:
    done(here, "add", "findings", "one")
    done(here, "export", "findings", "-o", "one.jsonl")
    assert "copy: 1 new passage" in done(here, "import", "copy", "one.jsonl", "--create")
    (one, other) = (passages(here, name)[0] for name in ("findings", "copy"))
    assert one["text"] == other["text"]
    assert one["id"] != other["id"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"text": "a\\u0000b"}', "line 2: the text has a NUL character in it"),
        ('{"text": "x", "tags": [""]}', "line 2: one of its tags is empty"),
        ('{"text": "x", "part": -1}', "line 2: it is part -1 of a text"),
        ('{"text": "x", "created": 1e300}', "line 2: it was created at 1e+300"),
        ('{"text": " "}', "line 2: its text is empty"),
    ],
)
def test_a_line_that_cannot_be_kept_is_found_before_anything_is(here: Path, line: str, said: str) -> None:
    (here / "bad.jsonl").write_text('{"text": "good"}\n' + line)
    refused(here_and_now(here, "import", "findings", "bad.jsonl"), said, "take the line out")
    assert passages(here, "findings") == []


def test_a_file_that_is_no_export_changes_nothing(here: Path) -> None:
    (here / "bad.jsonl").write_text('{"text": "good"}\n{"text": 5}\n')
    refused(here_and_now(here, "import", "findings", "bad.jsonl"), "bad.jsonl, line 2:", "Expected `str`, got `int`")
    (here / "bad.jsonl").write_text('{"text": "good", "archive": "a"}\n{"text": "x", "archive": "b"}\n')
    refused(here_and_now(here, "import", "findings", "bad.jsonl"), "holds a, b and nothing of 'findings'")
    assert passages(here, "findings") == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["search", "finding", "x"], "there is no archive 'finding'; did you mean 'findings'?"),
        (["add", "zzz", "x"], "there are findings, papers; name it under  memory: archives:  in the team file"),
        (["add", "findings", "none.md"], "there is no file 'none.md'"),
        (["add", "findings", "team.yaml", "words"], "there is no file 'words', and 'team.yaml' is one"),
        (["add", "findings", "  "], "the text is empty"),
        (["add", "findings", ""], "the text is empty"),
        (["add", "findings", "-dash"], "put  --  before words that begin with a dash"),
        (["search", "findings", " "], "the question is empty"),
        (["search", "findings", "x", "--since", "soon"], "'soon' is no time; write 2026-05-17"),
        (["embed", "findings"], "name another: say  embed: auto  of it in the team file"),
        (["import", "findings", "none.jsonl"], "none.jsonl cannot be read"),
        (["export"], "say which archive to export, or --all"),
        (["export", "findings", "-o", "no/where.jsonl"], "no/where.jsonl cannot be written"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(here: Path, words: list[str], said: str) -> None:
    refused(here_and_now(here, *words), said)


class _Letters(BaseHTTPRequestHandler):
    """A model whose vectors count letters: texts with the same letters are alike."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        texts: list[str] = [asked] if isinstance(asked, str) else asked
        rows = [[float(text.lower().count(letter)) + 0.01 for letter in "abcdefghijklmnop"] for text in texts]
        data = [{"index": at, "object": "embedding", "embedding": row} for at, row in enumerate(rows)]
        body = json.dumps({"object": "list", "data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name, not ours
        pass


def test_vectors_are_made_afterwards_and_then_meanings_are_compared(tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Letters)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        handle = f"openai+http://127.0.0.1:{server.server_port}/v1#letters"
        here = desk(tmp_path, TEAM.replace("What we found., embed: words", f'What we found., embed: "{handle}"'))
        (here / "given.jsonl").write_text('{"text": "aaa bbb"}\n{"text": "nnn ooo"}\n')
        said = done(here, "import", "findings", "given.jsonl")
        assert "make their vectors: chargehand memory embed findings" in said
        assert told(here, "archives")[0]["with_vectors"] == 0
        assert "findings: 2 vectors made" in done(here, "embed", "findings")
        assert "none was missing" in done(here, "embed", "findings")
        (findings, _) = told(here, "archives")
        assert (findings["with_vectors"], findings["width"]) == (2, 16)
        best = told(here, "search", "findings", "bab")[0]
        assert best["passage"]["text"] == "aaa bbb"
        assert best["meaning"] > 0.9
    finally:
        server.shutdown()
        server.server_close()


def test_progress_is_shown_on_a_terminal(here: Path) -> None:
    for number in range(40):
        (here / f"{number}.txt").write_text(f"text number {number}")
    files = [f"{number}.txt" for number in range(40)]
    terminal = Terminal(here, "memory", "add", "findings", *files)
    assert terminal.end() == 0
    assert "findings:  40 %  16 of 40 texts" in terminal.shown
    assert "findings: 40 new passages" in terminal.shown
