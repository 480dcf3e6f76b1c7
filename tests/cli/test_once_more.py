"""The same once more: what is finished is taken over, and what nobody could do is not forgotten."""

from pathlib import Path

from tests.cli.commands import chargehand

TEAM = """
version: 1
name: desk
workers:
  reckoner: {description: Works out figures., tools: [calculator]}
"""


def test_what_nobody_could_do_is_still_missing_the_second_time(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(TEAM)
    first = chargehand(tmp_path, "run", "What is 12% of 250? Then feed the cat.", "--run", "first")
    assert first.returncode == 3, first.stderr
    again = chargehand(tmp_path, "run", "--reuse", "first")
    assert again.returncode == 3, again.stderr
    assert "taken over from t1 of run first" in again.stderr
    assert "feed the cat: no worker on the team is meant for this." in again.stdout
    assert "ending: partial (gaps)" in again.stderr


def test_a_team_that_has_learnt_it_does_what_was_left_out(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(TEAM)
    chargehand(tmp_path, "run", "What is 12% of 250? Then feed the cat.", "--run", "first")
    (tmp_path / "pets.py").write_text('def feed_cat() -> str:\n    """Feed the cat."""\n    return "The cat is fed."\n')
    more = '  keeper: {description: Feeds the cat., tools: [feed_cat]}\ntools:\n  feed_cat: {python: "pets:feed_cat"}\n'
    (tmp_path / "team.yaml").write_text(TEAM + more)
    again = chargehand(tmp_path, "run", "--reuse", "first")
    assert again.returncode == 0, again.stderr
    assert "The cat is fed" in again.stdout
    assert "taken over from t1 of run first" in again.stderr


def test_a_run_that_is_done_again_from_a_task_on_knows_what_nobody_could_do(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(TEAM)
    chargehand(tmp_path, "run", "What is 12% of 250? Then feed the cat.", "--run", "first")
    again = chargehand(tmp_path, "replay", "first", "--from", "t1", "--run", "second")
    assert again.returncode == 3, again.stderr
    assert "may be used again; not covered: feed the cat: no worker on the team is meant for this." in again.stderr
    assert "feed the cat: no worker on the team is meant for this." in again.stdout
    assert "ending: partial (gaps)" in again.stderr
    third = chargehand(tmp_path, "replay", "second", "--from", "t1")
    assert third.returncode == 3, "also when it is done again once more"
    made = chargehand(tmp_path, "plan", "What is 12% of 250?", "-o", "plan.json")
    assert made.returncode == 0, made.stderr
    other = chargehand(tmp_path, "run", "What is 12% of 250?", "--reuse", "first", "--plan", "plan.json")
    assert (other.returncode, "Feed the cat" in other.stdout) == (0, False), "another request is another matter"
