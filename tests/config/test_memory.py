"""The memory section: what it comes to, and everything that can be wrong with it, each with its place."""

from pathlib import Path

import pytest

from chargehand.agents.messages import MAIL, ONE
from chargehand.config.load import load_memory, load_team
from chargehand.errors import Invalid
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import LIMIT, Block, Grant
from tests.config.files import parts, said, write

WORKERS = """\
workers:
  ann:
    description: Reads.
    remembers: true
    tools: [archival_memory_search, memory_rethink, calculator]
    blocks: {notes: write, persona: write}
  bob:
    description: Writes.
    tools: [conversation_search]
    remembers: true
    blocks: {persona: {access: append, tainted: true}}
    archives: {findings: read, papers: read, plain: write}
  cat: {description: Draws., blocks: {notes: none}, archives: [papers, plain]}
"""
WHOLE = """\
version: 1
memory:
  file: kept/memory.db
  blocks:
    guidelines: {value: "file:rules.md", description: How we work., limit: 2k, trusted: true, tags: [house]}
    notes: {share: append}
    persona: {trusted: true, share: append}
    motto: Brevity.
  archives:
    findings: {description: What we found., embed: words}
    papers: {add: texts/, share: read}
    plain: A plain text is its description.
"""


def whole(folder: Path) -> None:
    (folder / "rules.md").write_text("Cite every claim.\n")
    (folder / "texts").mkdir()
    (folder / "texts" / "one.md").write_text("# One\n")


def test_memory_is_what_the_file_says(tmp_path: Path) -> None:
    whole(tmp_path)
    found = parts(tmp_path, WHOLE + WORKERS)
    assert said(found.findings, found.source.file) == []
    memory = found.memory
    assert memory is not None
    assert list(memory.blocks) == [
        Block("guidelines", "Cite every claim.", "How we work.", 2000, trusted=True, share="read", tags=("house",)),
        Block("notes", limit=LIMIT, share="append"),
        Block("persona", trusted=True, share="append"),
        Block("motto", "Brevity."),
    ]
    assert list(memory.archives) == [
        Archive("findings", "What we found.", "words", "write"),
        Archive("papers", share="read"),
        Archive("plain", "A plain text is its description."),
    ]
    assert (memory.store, memory.sources) == (tmp_path / "kept/memory.db", {"papers": tmp_path / "texts"})


def test_each_worker_has_its_share(tmp_path: Path) -> None:
    whole(tmp_path)
    ann, bob, cat = parts(tmp_path, WHOLE + WORKERS).workers
    assert ann.blocks == {"notes": "write", "persona": "write"}
    assert bob.blocks == {"persona": Grant("append", tainted=True)}
    assert cat.blocks == {"notes": "none"}
    assert ann.archives is None
    assert bob.archives == {"findings": "read", "papers": "read", "plain": "write"}
    assert cat.archives == ("papers", "plain")
    assert (ann.remembers, cat.remembers) == (True, False)
    assert [getattr(tool, "name", tool) for tool in ann.tools] == [
        "archival_memory_search",
        "memory_rethink",
        "calculator",
    ]


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("blocks: {notes: {value: abcdef, limit: 5}}", "its value has 6 characters, and its limit is 5; shorten it"),
        ("blocks: {notes: {limit: 0}}", "memory.blocks.notes.limit: is 0; it must be between 1 and 1000000"),
        ('blocks: {"a b": x}', "memory.blocks.a b: 'a b' is no name for a block; use up to 64 letters"),
        ('archives: {"a/b": {}}', "memory.archives.a/b: 'a/b' is no name for an archive"),
        ("blocks: {notes: {value: 'file:none.md'}}", "memory.blocks.notes.value: there is no 'none.md' beside"),
        ("blocks: {notes: {read_only: true, share: append}}", "is read_only, and shared to append"),
        ("archives: {papers: {embed: openai}}", "memory.archives.papers.embed: is 'openai'; write auto, words,"),
        ("archives: {papers: {embed: word}}", "did you mean 'words'?"),
        ("archives: {papers: {add: none/}}", "memory.archives.papers.add: there is no 'none/' beside the team file"),
        ("archives: {papers: {add: ../}}", "leads out of the team's folder"),
        ("archives: {papers: {add: empty}}", "there are no .md or .txt files in 'empty'"),
        ("file: ../memory.db", "memory.file: '../memory.db' leads out of the team's folder"),
        ("file: empty", "memory.file: 'empty' is a folder; name a file, for example empty/memory.db"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, section: str, words: str) -> None:
    (tmp_path / "empty").mkdir()
    found = parts(tmp_path, f"version: 1\nmemory:\n  {section}\nworkers: {{ann: Reads., bob: Writes., cat: Draws.}}\n")
    (line,) = said(found.findings, found.source.file)
    assert line.startswith("team.yaml:3: memory.")
    assert words in line


def test_a_worker_names_only_what_there_is(tmp_path: Path) -> None:
    memory = "memory: {blocks: {notes: x}, archives: {papers: {}}}"
    text = f"version: 1\n{memory}\nworkers: {{ann: {{description: Reads., KEYS}}}}\n"
    for keys, words in (
        ("blocks: {note: write}", "names the block 'note', which the memory does not have; did you mean 'notes'?"),
        ("archives: [paper]", "names the archive 'paper', which the memory does not have; did you mean 'papers'?"),
    ):
        found = parts(tmp_path, text.replace("KEYS", keys))
        (line,) = said(found.findings, found.source.file)
        assert line.startswith("team.yaml:3: workers.ann: ")
        assert words in line


@pytest.mark.parametrize(
    ("worker", "words"),
    [
        ("tools: [memory_insert]", "has the tool 'memory_insert', but its team has no memory; give it one (`memory`)"),
        ("blocks: {notes: write}", "has blocks, but its team has no memory"),
        ("tools: [memory_insrt]", "there is no tool 'memory_insrt'; did you mean 'memory_insert'?"),
        (
            "remembers: true, tools: [conversation_search, conversation_search]",
            "has two tools called 'conversation_search'",
        ),
    ],
)
def test_a_memory_tool_needs_memory(tmp_path: Path, worker: str, words: str) -> None:
    found = parts(tmp_path, f"version: 1\nworkers:\n  ann: {{description: Reads., {worker}}}\n")
    (line,) = said(found.findings, found.source.file)
    assert words in line


def test_a_tool_of_ones_own_cannot_have_the_name_of_a_memory_tool(tmp_path: Path) -> None:
    text = 'version: 1\nmemory: {}\nworkers: {ann: Reads.}\ntools: {memory_insert: "tools:double"}\n'
    found = parts(tmp_path, text)
    assert "is the name of a memory tool" in said(found.findings, found.source.file)[0]
    assert parts(tmp_path, text.replace("memory: {}\n", "")).findings == []


def test_workers_made_on_the_fly_have_no_memory_tools(tmp_path: Path) -> None:
    text = "version: 1\nmemory: {blocks: {notes: x}}\nsupervisor: {factory: {tools: [memory_insert]}}\n"
    found = parts(tmp_path, text)
    assert "supervisor.factory.tools[0]: memory_insert is for workers" in said(found.findings, found.source.file)[0]


def test_rules_may_speak_of_memory_tools(tmp_path: Path) -> None:
    text = """\
    version: 1
    memory: {archives: {papers: {}}}
    workers: {ann: {description: Reads., archives: [papers], rules: [{run_first: archival_memory_search}]}}
    """
    assert parts(tmp_path, text).findings == []
    found = parts(tmp_path, text.replace("archival_memory_search", "memory_insert"))
    assert "which there is not" in said(found.findings, found.source.file)[0]


def test_a_worker_may_name_the_tools_for_messages(tmp_path: Path) -> None:
    text = f"""\
    version: 1
    workers:
      ann: {{description: Leads., tools: [{", ".join(MAIL)}, dates], contacts: ["*"], rules: [{{run_first: {ONE}}}]}}
      bob: Writes.
    """
    found = parts(tmp_path, text)
    assert found.findings == []
    assert [one for one in found.workers[0].tools if isinstance(one, str)] == list(MAIL)
    assert set(load_team(write(tmp_path, text)).roster.agents[0].tools) > set(MAIL)


def test_messages_are_not_for_workers_made_on_the_fly_and_a_wrong_name_is_put_right(tmp_path: Path) -> None:
    made = parts(tmp_path, f"version: 1\nsupervisor: {{factory: {{tools: [{ONE}]}}}}\n")
    assert "not for those made on the fly" in said(made.findings, made.source.file)[0]
    text = "version: 1\nworkers: {ann: {description: Leads., tools: [send_message_to_agents_matching_tag]}}\n"
    wrong = parts(tmp_path, text)
    assert "did you mean 'send_message_to_agents_matching_tags'?" in said(wrong.findings, wrong.source.file)[0]


def test_where_memory_is_kept(tmp_path: Path) -> None:
    named = write(tmp_path / "a", "version: 1\nname: a\nmemory: {file: m.db}\nworkers: {ann: Reads.}\n")
    unnamed = write(tmp_path / "b", "version: 1\nname: b\nmemory: {}\nworkers: {ann: Reads.}\n")
    silent = write(tmp_path / "c", "version: 1\nname: c\nworkers: {ann: Reads.}\n")
    remembers = write(tmp_path / "d", "version: 1\nworkers: {ann: {description: Reads., remembers: true}}\n")
    assert load_memory(named).memory.store == tmp_path / "a" / "m.db"
    assert load_memory(named, memory="x.db").memory.store == tmp_path / "a" / "m.db"
    assert load_memory(named, memory="x.db", elsewhere="y.db").memory.store == "y.db"
    assert load_memory(unnamed).memory.store is None
    assert load_memory(unnamed, memory="x.db").memory.store == "x.db"
    found = load_memory(silent, memory="x.db")
    assert (found.team, found.memory.store, found.has_memory) == ("c", "x.db", False)
    assert load_memory(remembers, memory="x.db").has_memory


def test_a_link_in_a_source_that_leads_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("hush")
    (tmp_path / "team" / "texts").mkdir(parents=True)
    (tmp_path / "team" / "texts" / "a.txt").symlink_to(tmp_path / "secret.txt")
    file = write(tmp_path / "team", "version: 1\nmemory: {archives: {p: {add: texts}}}\nworkers: {ann: Reads.}\n")
    with pytest.raises(Invalid, match="is a link that leads out of 'texts'"):
        load_memory(file)
