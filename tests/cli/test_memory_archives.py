"""`chargehand memory` on archives."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.cli.memories import TEAM, desk, done, here_and_now, told
from tests.cli.terminal import Terminal
from tests.cli.test_bad_input import refused


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return desk(tmp_path)


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
    found = [hit["passage"] for hit in told(here, "search", "findings", "cat", "dog", "bird", "lion")]
    sources = {passage["origin"]["source"]: passage["tags"] for passage in found}
    assert sources == {"": [], "texts/dog.md": ["animal", "seen"], "bird.log": ["animal", "seen"], "the zoo": []}


def test_a_search_keeps_to_what_was_asked(here: Path) -> None:
    done(here, "add", "findings", "red apple", "--tag", "fruit", "--tag", "red")
    done(here, "add", "findings", "red brick", "--tag", "red", "--source", "yard")

    def found(*words: str) -> set[str]:
        return {one["passage"]["text"] for one in told(here, "search", "findings", "red", *words)}

    assert found() == {"red apple", "red brick"}
    assert found("--tag", "fruit") == {"red apple"}
    assert found("--tag", "fruit", "--tag", "red") == {"red apple", "red brick"}
    assert len(found("--limit", "1")) == 1
    said = done(here, "search", "findings", "apple")
    assert "red apple" in said
    assert "words were compared, not meanings" in said
    assert done(here, "search", "findings", "zebra").startswith("nothing found")


def test_archives_are_listed_with_their_sizes(here: Path) -> None:
    done(here, "add", "findings", "one fact")
    done(here, "add", "findings", "another fact")
    (findings, papers) = told(here)["archives"]
    assert (findings["passages"], findings["with_vectors"], papers["passages"]) == (2, 0, 0)
    assert "findings  2         0        words" in done(here)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["search", "finding", "x"], "there is no archive 'finding'; did you mean 'findings'?"),
        (["add", "zzz", "x"], "there are findings, papers; memory add --create makes one"),
        (["add", "findings", "none.md"], "there is no file 'none.md'"),
        (["add", "findings", "team.yaml", "words"], "there is no file 'words', and 'team.yaml' is one"),
        (["add", "findings", "  "], "the text is empty"),
        (["add", "findings", ""], "the text is empty"),
        (["add", "findings", "-dash"], "put  --  before words that begin with a dash"),
        (["search", "findings", " "], "the question is empty"),
        (["embed", "findings"], "name another: say  embed: auto  of it in the team file"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(here: Path, words: list[str], said: str) -> None:
    refused(here_and_now(here, *words), said)


class _Letters(BaseHTTPRequestHandler):
    """A model whose vectors count letters: texts with the same letters are alike. It may be away."""

    is_away = False

    def do_POST(self) -> None:
        if _Letters.is_away:
            self.send_error(404)
            return
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
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        handle = f"openai+http://127.0.0.1:{server.server_port}/v1#letters"
        here = desk(tmp_path, TEAM.replace("What we found., embed: words", f'What we found., embed: "{handle}"'))
        _Letters.is_away = True
        done(here, "add", "findings", "aaa bbb")
        done(here, "add", "findings", "nnn ooo")
        _Letters.is_away = False
        assert told(here)["archives"][0]["with_vectors"] == 0
        assert "findings: 2 vectors made" in done(here, "embed", "findings")
        assert "none was missing" in done(here, "embed", "findings")
        (findings, _) = told(here)["archives"]
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
    assert "findings: texts" in terminal.shown
    assert "findings: 40 new passages" in terminal.shown
