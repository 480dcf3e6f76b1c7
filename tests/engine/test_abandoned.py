"""An attempt whose process died too often is given up: by a recorded history, decided anew at each of its resumes."""

from chargehand.engine import events as ev
from chargehand.engine.decide import decide
from chargehand.engine.fold import replay
from tests.histories.kept import entries_of, read_lines


def test_an_attempt_is_given_up_after_as_many_crashes_as_are_allowed_and_not_before() -> None:
    entries = entries_of(read_lines("abandoned"), "abandoned")
    request = entries[0].event
    assert isinstance(request, ev.RunRequested)
    resumes = [place for place, entry in enumerate(entries, 1) if isinstance(entry.event, ev.RunResumed)]
    given_up: list[bool] = []
    for place in resumes:
        decided = decide(replay(entries[:place]), entries[place - 1].at)
        given_up.append(any(isinstance(event, ev.AttemptAbandoned) for event in decided))
    allowed = request.policy.limits.resumes
    assert given_up[: allowed + 1] == [False] * allowed + [True]
