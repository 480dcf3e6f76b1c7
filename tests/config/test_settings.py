"""`settings:` in a team file: what it comes to, and what is said of values that make no sense."""

from pathlib import Path

import pytest

from chargehand.config.load import load_team
from chargehand.errors import Invalid
from chargehand.models.messages import Effort, Settings
from chargehand.team import Team

DEFAULTS = "defaults: {settings: {effort: low, cache: off, seed: 3}}"


def loaded(folder: Path, *lines: str, effort: Effort | None = None) -> Team:
    file = folder / "team.yaml"
    file.write_text("\n".join(("version: 1", *lines)))
    return load_team(file, effort=effort)


def ann(settings: str) -> str:
    return f"workers: {{ann: {{description: Counts., settings: {settings}}}}}"


def test_a_worker_takes_what_it_leaves_out_from_the_defaults(tmp_path: Path) -> None:
    own = "{effort: none, top_p: 0.5, stop: [END], service_tier: flex, cache: 1h, extra: {a: {b: [1, yes]}}}"
    team = loaded(tmp_path, DEFAULTS, "supervisor: {settings: {effort: max}}", ann(own))
    assert team.spec.workers[0].settings == Settings(
        effort="none",
        top_p=0.5,
        seed=3,
        stop=["END"],
        service_tier="flex",
        cache="1h",
        extra={"a": {"b": [1, "yes"]}},
    )
    assert team.supervisor.settings == Settings(effort="max", seed=3, cache="off")


def test_an_effort_that_is_given_stands_in_for_all_that_the_file_names(tmp_path: Path) -> None:
    team = loaded(tmp_path, DEFAULTS, ann("{effort: none}"), effort="high")
    assert [worker.settings.effort for worker in team.spec.workers] == ["high"]
    assert team.supervisor.settings.effort == "high"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("{effort: hihg}", r"settings.effort: is the text 'hihg'; it must be one of .*; did you mean 'high'"),
        ("{thinking: high}", r"settings.thinking: there is no key 'thinking' here; did you mean 'effort'"),
        ("{top_p: 2}", r"settings.top_p: is 2; it must be between 0 and 1"),
        ("{seed: 1.5}", r"settings.seed: must be a whole number"),
        ("{stop: END}", r"settings.stop: must be a list"),
        ("{stop: ['']}", r"settings.stop: holds an empty text"),
        ("{service_tier: fast}", r"settings.service_tier: is the text 'fast'; it must be one of auto, default, flex"),
        ("{cache: 2h}", r"settings.cache: is the text '2h'; it must be one of 1h, 5m, off"),
        ("{extra: {model: x}}", r"settings.extra: holds 'model', which every call sets itself"),
        ("{extra: {temperature: 1}}", r"settings.extra: holds 'temperature', which has a setting of its own"),
        ("{max_tokens: 0}", r"settings.max_tokens: is 0; a reply has at least one token: write 1 or more"),
        (
            "{extra: {max_tokens: 64000}}",
            r"settings.extra: holds 'max_tokens', which has a setting of its own; write max_",
        ),
        ("{extra: {n: 3}}", r"settings.extra: holds 'n', which every call sets itself; leave it out"),
        ("{extra: {options: {num_predict: 9}}}", r"settings.extra: holds 'options.num_predict', which has a setting"),
        ("{effort: low, extra: {thinking: {}}}", r"settings.extra: holds 'thinking' and effort is set"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_line(tmp_path: Path, settings: str, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        loaded(tmp_path, ann(settings))
