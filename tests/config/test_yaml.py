"""YAML 1.2 core types, lines, and everything that is refused before it can hurt."""

import time

import pytest

from chargehand.config.source import DEPTH, NotYaml, read_yaml


@pytest.fixture(params=["the C parser", "the Python parser"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every installation has libyaml; both must do the same."""
    if request.param == "the Python parser":
        monkeypatch.delattr("yaml.CSafeLoader")


def refused(text: str) -> NotYaml:
    with pytest.raises(NotYaml) as caught:
        read_yaml(text)
    return caught.value


def test_only_true_and_false_are_booleans() -> None:
    data = read_yaml("a: true\nb: FALSE\nc: yes\nd: on\ne: off\nf: n\non: 1\nno: 2\ny: 3").data
    words = {"a": True, "b": False, "c": "yes", "d": "on", "e": "off", "f": "n"}
    assert data == {**words, "on": 1, "no": 2, "y": 3}


def test_scalars_have_the_types_of_the_core_schema() -> None:
    text = "[1, -7, 0x1F, 0o17, 010, 1.5, 1e3, .5, ~, null, '', '1', \"true\", 1_000, 12:30:45, 2026-11-15, 0b1]"
    expected = [
        1,
        -7,
        31,
        15,
        10,
        1.5,
        1000.0,
        0.5,
        None,
        None,
        "",
        "1",
        "true",
        "1_000",
        "12:30:45",
        "2026-11-15",
        "0b1",
    ]
    assert read_yaml(text).data == expected


def test_keys_are_text_as_written() -> None:
    assert read_yaml("1: a\ntrue: b\n~: c\n1.0: d").data == {"1": "a", "true": "b", "~": "c", "1.0": "d"}


def test_every_value_has_its_line() -> None:
    document = read_yaml("a: 1\nb:\n  c: [x,\n      y]\n  d:\n    - {e: 2}\n")
    assert document.lines == {
        ("a",): 1,
        ("b",): 2,
        ("b", "c"): 3,
        ("b", "c", 0): 3,
        ("b", "c", 1): 4,
        ("b", "d"): 5,
        ("b", "d", 0): 6,
        ("b", "d", 0, "e"): 6,
    }


def test_an_alias_stands_for_its_anchor() -> None:
    assert read_yaml("a: &x {k: 1}\nb: *x\nc: [*x, *x]").data == {
        "a": {"k": 1},
        "b": {"k": 1},
        "c": [{"k": 1}, {"k": 1}],
    }


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3", 3, "the key 'a' is here twice (first in line 1)"),
        ("b: {x: 1,\n x: 2}", 2, "the key 'x' is here twice"),
        ("a: !!python/object:os.system x", 1, "the tag 'tag:yaml.org,2002:python/object:os.system' is not understood"),
        ("a: !mine [1]", 1, "the tag '!mine' is not understood"),
        ("a: 1\n---\nb: 2", 2, "a second document begins here"),
        ("a: &x 1\nb: {<<: *x}", 2, "merge keys (<<) are not understood"),
        ("? [1, 2]\n: 3", 1, "a key must be text"),
        ("a: *nobody", 1, "the alias *nobody has no finished anchor"),
        ("a: &x [*x]", 1, "the alias *x has no finished anchor"),
        ("a: 1\nb: [1,\n2\n", 4, "(in what begins in line 2)"),
        ("a: b: c", 1, "this is not YAML"),
        ("\ta: 1", 1, "this is not YAML"),
        ("? " + "k" * 300 + "\n: 1", 1, "a key has more than 200 characters"),
        ("a: \x07", 0, "this is not YAML"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_line(text: str, line: int, words: str) -> None:
    error = refused(text)
    assert words in str(error)
    assert error.line == line


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 50_000, "- " * 20_000 + "x", "a: " + "[" * (DEPTH + 1)])
def test_deep_nesting_is_refused_at_once(text: str) -> None:
    began = time.perf_counter()
    assert f"nested more than {DEPTH} levels" in str(refused(text))
    assert time.perf_counter() - began < 5


def test_as_deep_as_allowed_is_read() -> None:
    assert read_yaml("[" * DEPTH + "]" * DEPTH).data is not None


def test_a_billion_laughs_are_not_laughed() -> None:
    lines = ["a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert "more than 50,000 values" in str(refused("\n".join(lines)))


def test_an_anchor_used_often_enough_is_refused_too() -> None:
    text = "a: &x [" + "1, " * 300 + "]\nb: [" + "*x, " * 300 + "]"
    assert "more than 50,000 values" in str(refused(text))
