"""Every wrong key, type and number is found at once, with its line and what would be right."""

import time
from pathlib import Path

import pytest

from chargehand.config.describe import describe
from tests.config.files import said, shaped, write
from tests.support.hunts import hunt_size

WORKERS = "workers: {ann: Reads.}\n"


def findings(folder: Path, text: str) -> list[str]:
    file = write(folder, text)
    _, found = shaped(file)
    return said(found, file)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("budgett: {usd: 1}", "2: budgett: there is no key 'budgett' here; did you mean 'budget'?"),
        ("zzz: 1", "2: zzz: there is no key 'zzz' here; the keys are version, name, description"),
        (
            "defaults: {settings: {temprature: 1}}",
            "defaults.settings.temprature: there is no key 'temprature' here; did you mean 'temperature'?",
        ),
        ("policy:\n  retry:\n    atempts: 3", "4: policy.retry.atempts: there is no key 'atempts'"),
        ("defaults: {timeout: 90 seconds}", "defaults.timeout: is '90 seconds'; write a duration such as 90s"),
        ("policy: {retry: {attempts: 0}}", "policy.retry.attempts: is 0; it must be 1 or more"),
        ("policy: {retry: {base: soon}}", "policy.retry.base: is 'soon'; write a duration such as 90s"),
        ("defaults: {steps: 0}", "defaults.steps: is 0; it must be between 1 and 10000"),
        ("defaults: {steps: ten}", "defaults.steps: must be a whole number, not the text 'ten'"),
        ("defaults: {steps: true}", "defaults.steps: must be a whole number, not true"),
        ("defaults: {settings: {temperature: 3}}", "defaults.settings.temperature: is 3; it must be between 0 and 2"),
        ("budget: {usd: free}", "budget.usd: is 'free'; write dollars as a number such as 0.50"),
        ("budget: {tokens: 200q}", "budget.tokens: is '200q'; write a size such as 200k"),
        ("budget: 5", "budget: must be a table of keys, not the number 5"),
        ("budget:", "budget: must be a table of keys, not nothing"),
        ("name: 5", "name: must be text, not the number 5; put it in quotes"),
        ("name:", "name: has no value; give it one, or remove the key"),
        ("examples: one", "examples: must be a list, not the text 'one'; write [one]"),
        ("policy: {refine: yes}", "policy.refine: must be true or false, not the text 'yes'"),
        ("supervisor: {combine: merg}", "supervisor.combine: is the text 'merg'; it must be one of"),
        ("supervisor: {combine: merg}", "did you mean 'merge'?"),
        (
            'tools: {pay: {python: "tools:pay", approve: "> 500"}}',
            'it must be one of always, never, or conditions such as {argument: "> 500"}',
        ),
        ("policy: {uncertain: sometimes}", "policy.uncertain: is the text 'sometimes'; it must be one of"),
        ("memory: {block: {}}", "memory.block: there is no key 'block' here; did you mean 'blocks'?"),
        ("memory: {blocks: {a: {shared: all}}}", "memory.blocks.a.shared: there is no key 'shared' here; did you mean"),
        ("memory: {blocks: {a: {share: some}}}", "memory.blocks.a.share: is the text 'some'; it must be one of append"),
        (
            "memory: {blocks: {a: {tags: ann}}}",
            "memory.blocks.a.tags: must be a list, not the text 'ann'; write [ann]",
        ),
        ("memory: {archives: {a: {limit: 3}}}", "memory.archives.a.limit: there is no key 'limit' here"),
        ("tools: {x: {sql: [a]}}", "tools.x.sql: must be text, not a list"),
        ("tools: {x: {fetch: {alow: []}}}", "tools.x.fetch.alow: there is no key 'alow' here; did you mean 'allow'?"),
        ("tools: {x: 5}", "tools.x: must be text, not the number 5"),
        ("supervisor: {cache: 10m}", "it holds for the whole team: write it at the top, beside  workers:"),
        ("supervisor: {strategy: fixed}", "supervisor.strategy: is 'fixed', which is said with the plan itself"),
    ],
)
def test_a_wrong_value_is_said_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    (finding,) = findings(tmp_path, f"version: 1\n{text}\n{WORKERS}")
    assert finding.startswith("team.yaml:")
    assert words in finding


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty; begin with  version: 1"),
        ("# nothing but words", "is empty; begin with"),
        ("- a\n- b", "holds no table of keys"),
        ("just text", "holds no table of keys"),
    ],
)
def test_a_file_without_keys_is_no_team(tmp_path: Path, text: str, words: str) -> None:
    from chargehand.errors import Invalid

    with pytest.raises(Invalid, match=words):
        shaped(write(tmp_path, text))


def test_the_version_is_checked(tmp_path: Path) -> None:
    assert findings(tmp_path, WORKERS) == ["team.yaml: there is no version; begin with  version: 1"]
    for wrong in ("2", "'1'", "1.0", "true", "one"):
        (finding,) = findings(tmp_path, f"version: {wrong}\n{WORKERS}")
        assert "this chargehand reads version 1: write  version: 1" in finding


def test_everything_wrong_is_said_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """\
    version: 1
    nam: x
    budget: {usd: -1}
    workers:
      ann: {tools: 7}
      bob:
        rules: [{run_frist: a}, {max_count_per_step: {tool: a}}]
        model: ${NO_SUCH_MODEL}
    """
    found = findings(tmp_path, text)
    assert [one.split(":")[1] for one in found] == ["2", "3", "5", "7", "7", "8"]
    assert "workers.bob.rules[0].run_frist: there is no key 'run_frist' here; did you mean 'run_first'?" in found[3]
    assert "workers.bob.rules[1].max_count_per_step: has no 'limit'" in found[4]


def test_a_file_full_of_mistakes_is_answered_soon(tmp_path: Path) -> None:
    mistakes = hunt_size(quick=5_000, thorough=30_000)
    began = time.process_time()
    found = findings(tmp_path, "version: 1\n" + "".join(f"key_number_{n}: 1\n" for n in range(mistakes)))
    assert len(found) == 100
    assert time.process_time() - began < mistakes / 3_000


def test_long_values_are_not_repeated_in_full(tmp_path: Path) -> None:
    text = f"version: {'x' * 9000}\nsupervisor: {{combine: {'y' * 9000}}}\nbudget: {{usd: {'z' * 9000}}}\n"
    assert max(len(one) for one in findings(tmp_path, text)) < 1000


def test_short_and_long_forms_are_both_read(tmp_path: Path) -> None:
    text = """\
    version: 1
    workers:
      ann: Reads.
      bob: {description: Writes.}
    tools:
      a: calculator
      b: "tools:double"
      c: {calculator: true}
      d: {calculator: {}}
    """
    assert findings(tmp_path, text) == []


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("capacity", "concurrency"),
        ("fallback", "fallbacks"),
        ("does", "description"),
        ("descripton", "description"),
        ("system_prompt", "prompt"),
    ],
)
def test_a_key_that_does_not_exist_is_refused_with_the_one_that_was_meant(tmp_path: Path, key: str, meant: str) -> None:
    (finding,) = findings(tmp_path, f"version: 1\nworkers:\n  ann:\n    {key}: 1\n")
    assert f"4: workers.ann.{key}: there is no key {key!r} here; did you mean {meant!r}?" in finding


@pytest.mark.parametrize("key", ["wall", "seconds", "timeout"])
def test_the_time_of_a_run_stands_at_the_top_of_the_file(tmp_path: Path, key: str) -> None:
    (finding,) = findings(tmp_path, f"version: 1\nworkers: {{ann: Reads.}}\nbudget:\n  {key}: 5m\n")
    assert f"4: budget.{key}: there is no key {key!r} here" in finding
    assert "rite it at the top, beside  workers:" in finding


def test_what_is_wrong_beside_the_shape_is_said_in_the_same_go(tmp_path: Path) -> None:
    text = """\
    version: 1
    nam: x
    workers:
      ann: {description: Reads., tools: [calculater], stepz: 3}
      bob: 7
      cat: {description: Writes., fallbacks: [bob, dan]}
    tools: {sow: 7, dig: {python: "nothing:here"}}
    """
    file = write(tmp_path, text)
    assert said(describe(file).findings, file) == [
        "team.yaml:2: nam: there is no key 'nam' here; did you mean 'name'?",
        "team.yaml:4: workers.ann.stepz: there is no key 'stepz' here; did you mean 'steps'?",
        "team.yaml:4: workers.ann.tools[0]: there is no tool 'calculater'; did you mean 'calculator'?",
        "team.yaml:5: workers.bob: must be text, not the number 7; put it in quotes",
        "team.yaml:6: workers.cat.fallbacks[1]: there is no other worker 'dan' to fall back to; did you mean 'ann'?",
        "team.yaml:7: tools.sow: must be text, not the number 7; put it in quotes",
        "team.yaml:7: tools.dig: there is no module 'nothing', neither beside the team file nor installed",
    ]


def test_nothing_is_said_that_only_follows_from_what_is_wrong_with_the_shape(tmp_path: Path) -> None:
    file = write(tmp_path, "version: 1\nworker: {ann: Reads.}\nmemory: {blocks: {a: {value: 7}}}\n")
    assert [finding.path for finding in describe(file).findings] == ["worker", "memory.blocks.a.value"]
