"""From shapes to workers and tools: references that lead nowhere are said, each with its place."""

import sys
from pathlib import Path

import pytest

from chargehand.engine.budget import Amount
from chargehand.tools import rules
from chargehand.tools.tool import Tool
from tests.config.files import parts, said


def problem(folder: Path, text: str) -> str:
    found = parts(folder, text)
    (finding,) = said(found.findings, found.source.file)
    return finding


def tool_problem(folder: Path, entry: str) -> str:
    return problem(folder, f"version: 1\nworkers: {{ann: Reads.}}\ntools:\n  mine: {entry}\n")


def test_a_worker_is_made_of_what_the_file_says(tmp_path: Path) -> None:
    text = """\
    version: 1
    defaults: {model: demo, timeout: 90s, steps: 7, settings: {temperature: 0.5, max_tokens: 2k}}
    tools:
      twice: {python: "tools:double", timeout: 3s, cap: 1k, approve: always, effect: idempotent}
    workers:
      ann:
        description: Reads.
        prompt: Be brief.
        tags: [reading]
        tools: [twice]
        model: scripted:ann
        fallback_models: [demo]
        fallbacks: [bob]
        output: {type: object, properties: {a: {type: string}}}
        rules: [{run_first: twice}, {max_count_per_step: {tool: twice, limit: 2}}]
        steps: 3
        concurrency: 2
        timeout: 5m
        estimate: {tokens: 1k, usd: 0.002, calls: 3}
        seconds: 4s
        settings: {temperature: 0}
      bob: Writes.
    """
    found = parts(tmp_path, text)
    assert found.findings == []
    ann, bob = found.workers
    assert (ann.name, ann.description, ann.prompt, ann.tags) == ("ann", "Reads.", "Be brief.", ("reading",))
    assert (ann.model, ann.fallback_models, ann.fallbacks) == ("scripted:ann", ("demo",), ("bob",))
    assert (ann.steps, ann.concurrency, ann.timeout, ann.seconds) == (3, 2, 300.0, 4.0)
    assert ann.estimate == Amount(1000, 2000, 3)
    assert ann.output == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert ann.rules == (rules.RunFirst("twice"), rules.MaxCountPerStep("twice", 2))
    assert (ann.settings.temperature, ann.settings.max_tokens) == (0, 2000)
    (twice,) = ann.tools
    assert isinstance(twice, Tool)
    assert (twice.name, twice.timeout, twice.cap) == ("twice", 3.0, 1000)
    assert (twice.approve, twice.effect) == (True, "idempotent")
    assert (bob.name, bob.description, bob.model, bob.timeout, bob.steps) == ("bob", "Writes.", "demo", 90.0, 7)
    assert bob.settings.temperature == 0.5


def test_one_model_can_stand_in_for_all(tmp_path: Path) -> None:
    text = """\
    version: 1
    defaults: {model: "a:b"}
    workers:
      ann: {description: Reads., model: "c:d", fallback_models: ["e:f"]}
      bob: Writes.
    supervisor: {factory: {model: "g:h"}}
    """
    found = parts(tmp_path, text, "demo")
    assert [worker.model for worker in found.workers] == ["demo", "demo"]
    assert [worker.fallback_models for worker in found.workers] == [(), ()]
    assert found.factory is not None
    assert found.factory.model == "demo"


@pytest.mark.parametrize(
    ("worker", "words"),
    [
        ("tools: [twise]", "workers.ann.tools[0]: there is no tool 'twise'; did you mean 'twice'?"),
        ("tools: [zzz]", "workers.ann.tools[0]: there is no tool 'zzz'; there are twice, ask_person"),
        (
            "tools: [twice, twice]",
            "workers.ann.tools: worker 'ann' has two tools called 'twice'; give one",
        ),
        (
            "fallbacks: [bobb]",
            "workers.ann.fallbacks[0]: there is no other worker 'bobb' to fall back",
        ),
        ("fallbacks: [ann]", "there is no other worker 'ann' to fall back to"),
        ("prompt: file:prompts/none.md", "workers.ann.prompt: there is no 'prompts/none.md' beside the team file"),
        ("prompt: file:../secret.md", "workers.ann.prompt: '../secret.md' leads out of the team's folder"),
        ("prompt: file:/etc/passwd", "workers.ann.prompt: '/etc/passwd' is not relative to the team file"),
        ("prompt: file:~/x", "'~/x' is not relative to the team file"),
        ("prompt: 'file:'", "'' is no path"),
        ("prompt: file:.", "is no regular file"),
        ("output: file:tools.py", "workers.ann.output: 'tools.py' is not JSON"),
        ("output: object", "'object' is no schema; write file: and a path"),
        ("output: {properties: {}}", "is no JSON Schema: begin with  type: object"),
        ("rules: [{}]", "workers.ann.rules[0]: must be exactly one rule, and is 0"),
        ("rules: [{run_first: a, exit_loop: b}]", "must be exactly one rule, and is 2 (run_first, exit_loop)"),
        ("rules: [{run_first: twice}]", "names the tool 'twice', which there is not"),
    ],
)
def test_what_leads_nowhere_is_said(tmp_path: Path, worker: str, words: str) -> None:
    text = f"""\
    version: 1
    tools: {{twice: "tools:double"}}
    workers:
      bob: Writes.
      ann:
        description: Reads.
        {worker}
    """
    finding = problem(tmp_path, text)
    assert finding.startswith("team.yaml:7: workers.ann.")
    assert words in finding


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("{}", "names no source; a tool has exactly one of python, sql, documents"),
        ("{calculator: false}", "names no source"),
        ("{python: 'tools:double', sql: data}", "names 2 sources (python, sql)"),
        ("{python: tools}", "'tools' names no Python object; write module:attribute"),
        ("{python: 'tools:os.system'}", "names no Python object"),
        ("{python: '../tools:double'}", "names no Python object"),
        ("{python: 'tools:doubel'}", "'tools' has no 'doubel'; did you mean 'double'?"),
        ("{python: 'tools:zzz'}", "'tools' has no 'zzz'; it has "),
        ("{python: 'toolz:double'}", "there is no module 'toolz', neither beside the team file nor installed; did you"),
        ("{python: 'tools:RATE'}", "'tools:RATE' is int, not a tool, a function"),
        ("nonsense", "'nonsense' is no tool; write module:attribute, or one of ask_person"),
        ("{sql: ../data}", "'../data' leads out of the team's folder"),
        ("{sql: nowhere.db}", "there is no 'nowhere.db' beside the team file"),
        ("{documents: nowhere}", "there is no 'nowhere' beside the team file"),
        ("{files: /etc}", "'/etc' is not relative to the team file"),
    ],
)
def test_a_tool_that_cannot_be_made_is_said(tmp_path: Path, entry: str, words: str) -> None:
    finding = tool_problem(tmp_path, entry)
    assert finding.startswith("team.yaml:4: tools.mine: ")
    assert words in finding


def test_tools_come_from_python_in_every_form(tmp_path: Path) -> None:
    text = """\
    version: 1
    workers: {ann: Reads.}
    tools:
      function: "tools:double"
      ready: "tools:triple"
      made: "tools:triple"
      two: "tools:made_two"
      plain: "tools:today"
      installed: "json:dumps"
    """
    found = parts(tmp_path, text)
    names = {entry: [tool.name for tool in tools] for entry, tools in found.tools.items()}
    assert names["function"] == ["function"]
    assert names["ready"] == ["ready"]
    assert names["made"] == ["made"]
    assert names["two"] == ["own_name", "double"]
    assert names["plain"] == ["plain"]
    (ready,) = found.tools["ready"]
    assert (ready.effect, ready.timeout, ready.spec.description) == ("effect", 5.0, "Three times a number.")


async def test_a_tool_of_the_folder_can_be_called(tmp_path: Path) -> None:
    found = parts(tmp_path, "version: 1\nworkers: {ann: Reads.}\ntools: {twice: 'tools:double'}\n")
    (twice,) = found.tools["twice"]
    assert await twice.call('{"number": 21}', "key") == 42


def test_two_tools_of_one_name_in_one_hand_are_refused(tmp_path: Path) -> None:
    text = """\
    version: 1
    workers:
      ann: {description: Reads., tools: [double, two]}
    tools: {double: "tools:double", two: "tools:made_two"}
    """
    assert "has two tools called 'double'; give one of them another name" in problem(tmp_path, text)


def test_two_teams_may_each_have_their_tools(tmp_path: Path) -> None:
    before = set(sys.modules)
    path = list(sys.path)
    text = "version: 1\nworkers: {ann: Reads.}\ntools: {x: 'tools:double'}\n"
    first = parts(tmp_path / "a" if (tmp_path / "a").mkdir() is None else tmp_path, text)
    (tmp_path / "b").mkdir()
    second = parts(tmp_path / "b", text)
    assert first.tools["x"][0].function is not second.tools["x"][0].function
    assert sys.path == path
    assert "tools" not in sys.modules
    assert all(name.startswith("_chargehand_") for name in set(sys.modules) - before if "tools" in name)


def test_a_module_that_fails_is_said_and_forgotten(tmp_path: Path) -> None:
    folder = tmp_path / "team"
    folder.mkdir()
    (folder / "bad.py").write_text("import nowhere_at_all\n")
    (folder / "worse.py").write_text("1 / 0\n")
    (folder / "exits.py").write_text("raise SystemExit(3)\n")
    (folder / "spelt.py").write_text("def broken(:\n")
    before = set(sys.modules)
    assert "'bad' imports 'nowhere_at_all', which is not installed" in tool_problem(folder, "'bad:x'")
    assert "'worse' failed when it was loaded: ZeroDivisionError" in tool_problem(folder, "'worse:x'")
    assert "'exits' failed when it was loaded: SystemExit: 3" in tool_problem(folder, "'exits:x'")
    assert "'spelt' failed when it was loaded: SyntaxError" in tool_problem(folder, "'spelt:x'")
    assert not [name for name in set(sys.modules) - before if name.startswith("_chargehand_")]


def test_a_package_beside_the_file_may_import_its_own_modules(tmp_path: Path) -> None:
    kit = tmp_path / "kit"
    kit.mkdir()
    (kit / "__init__.py").write_text("")
    (kit / "rates.py").write_text("from .numbers import RATE\ndef rate() -> int:\n    '''A rate.'''\n    return RATE\n")
    (kit / "numbers.py").write_text("RATE = 5\n")
    found = parts(tmp_path, "version: 1\nworkers: {ann: Reads.}\ntools: {rate: 'kit.rates:rate'}\n")
    assert found.findings == []
    assert found.tools["rate"][0].function() == 5


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("secret")
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "link.md").symlink_to(tmp_path / "secret.md")
    (tmp_path / "team" / "linked.py").symlink_to(tmp_path / "secret.md")
    text = "version: 1\nworkers: {ann: {description: Reads., prompt: 'file:link.md'}}\n"
    assert "'link.md' leads out of the team's folder" in problem(tmp_path / "team", text)
    assert "'linked.py' leads out of the team's folder" in tool_problem(tmp_path / "team", "'linked:x'")


def test_a_prompt_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "ann.md").write_text("\nBe brief: $5 and ${NOTHING}.\n")
    found = parts(tmp_path, "version: 1\nworkers: {ann: {description: Reads., prompt: 'file:prompts/ann.md'}}\n")
    assert found.workers[0].prompt == "Be brief: $5 and ${NOTHING}."


def test_a_team_without_workers_needs_a_factory(tmp_path: Path) -> None:
    assert "there are no workers; write  workers:" in problem(tmp_path, "version: 1\n")
    assert parts(tmp_path, "version: 1\nsupervisor: {factory: {tools: []}}\n").findings == []


def test_a_worker_nobody_describes_is_a_warning(tmp_path: Path) -> None:
    found = parts(tmp_path, "version: 1\nworkers: {ann: {prompt: x}}\n")
    (finding,) = found.findings
    assert not finding.grave
    assert "has no description; the planner reads it" in finding.message


def test_what_a_module_prints_is_not_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "loud.py").write_text('print("hello")\ndef shout() -> str:\n    "Shout."\n    return "A"\n')
    assert parts(tmp_path, "version: 1\nworkers: {ann: Reads.}\ntools: {shout: 'loud:shout'}\n").findings == []
    assert capsys.readouterr() == ("", "hello\n")


def test_a_tool_is_called_what_models_can_call_it(tmp_path: Path) -> None:
    finding = problem(tmp_path, "version: 1\nworkers: {ann: Reads.}\ntools: {web.fetch: 'tools:double'}\n")
    assert "'web.fetch' is no name for a tool; use letters, digits, _ and -: web_fetch" in finding


@pytest.mark.parametrize("name", ["'a b'", "'../x'", "''", "x" + "y" * 80, "'a\\nb'"])
def test_a_name_is_a_word(tmp_path: Path, name: str) -> None:
    assert "is no name for a worker; use up to 64 letters" in problem(
        tmp_path, f"version: 1\nworkers: {{? {name} : Reads.}}\n"
    )


def test_every_source_makes_its_tools(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "sales.csv").write_text("day,euros\n2026-01-01,5\n")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "note.md").write_text("# Note\n\nWater in the morning.\n")
    text = """\
    version: 1
    tools:
      sales: {sql: data/}
      notes: {documents: texts}
      files: {files: texts}
      library: {files: texts, cap: 2k}
      web: {fetch: {allow: [example.com, "*.example.org"]}}
      python: {sandbox: {}}
      sums: {calculator: true}
      picture: chart
      days: {dates: {}}
    workers:
      ann: {description: Does it all., tools: [sales, notes, library, files, web, python, sums, picture, days]}
      bob: {description: Needs no entries., tools: [calculator, chart, dates, sandbox]}
    """
    found = parts(tmp_path, text)
    assert [str(one) for one in found.findings] == []
    names = {entry: [tool.name for tool in tools] for entry, tools in found.tools.items()}
    assert names == {
        "sales": ["sales"],
        "notes": ["notes"],
        "files": ["read_file", "list_files"],
        "library": ["library_read_file", "library_list_files"],
        "web": ["web"],
        "python": ["python"],
        "sums": ["sums"],
        "picture": ["picture"],
        "days": ["today", "date_info", "days_between", "add_days"],
    }
    assert {tool.cap for tool in found.tools["library"]} == {2000}
    ann, bob = found.workers
    assert len(ann.tools) == 14
    held = [tool.name for tool in bob.tools if isinstance(tool, Tool)]
    assert held == ["calculator", "chart", "today", "date_info", "days_between", "add_days", "sandbox"]


def test_a_tool_may_be_named_by_its_file(tmp_path: Path) -> None:
    made = parts(
        tmp_path, "version: 1\ntools: {x: {python: 'tools.py:double'}}\nworkers: {ann: {description: a, tools: [x]}}\n"
    )
    assert not made.findings
    assert [one.name for one in made.tools["x"]] == ["x"]
