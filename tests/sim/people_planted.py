"""Bugs planted on purpose around persons, effects and redone work, each of which `people` must find."""

from concurrent.futures import ThreadPoolExecutor

from tests.sim.planted import Bug, hunt

SEEDS = 8000
"""How many seeds a bug may survive."""

PEOPLE = (
    # questions
    Bug(
        "a call that needs a yes is made without",
        "agents/tool_calls.py",
        "if tool.approve or tool.asks or (self._decided",
        "if tool.asks or (self._decided",
    ),
    Bug(
        "a no of a person is a yes",
        "agents/tool_calls.py",
        "if refusal := answers[key]:",
        "if False and (refusal := answers[key]):",
    ),
    Bug(
        "a yes is good for every equal call",
        "agents/tool_calls.py",
        "return digest(*which, str(times)), times",
        "return digest(*which), times",
    ),
    Bug(
        "an answer to another question is taken",
        "engine/admit.py",
        "if question is None or question.number != report.number:",
        "if question is None:",
    ),
    Bug(
        "the deadline strikes while a person is asked",
        "engine/decide.py",
        "if is_late and state.input is None:",
        "if is_late:",
    ),
    Bug(
        "the time of a person counts for the run",
        "engine/fold.py",
        "    _give_time(state, waited)  # the time a person takes is not the run's\n",
        "",
    ),
    Bug(
        "an answer that is no option is taken",
        "engine/admit.py",
        "if options and not question.free_text and value not in options:",
        "if False:",
    ),
    Bug(
        "an answer that does not fit its schema is taken",
        "engine/admit.py",
        'of the question: {misfit}" if misfit else ""',
        'of the question: {misfit}" if False else ""',
    ),
    Bug(
        "a verdict on a call that nobody asked about is taken",
        "engine/admit.py",
        "    _check_calls(question, report)\n",
        "",
    ),
    Bug(
        "steps are lost by a question",
        "engine/fold.py",
        "progress.steps = _kept_steps(progress)\n        state.failed_pending[event.task] = None\n        return\n",
        "progress.steps = None\n        state.failed_pending[event.task] = None\n        return\n",
    ),
    Bug(
        "steps are lost by a crash",
        "engine/fold.py",
        "    else:\n        progress.steps = _kept_steps(progress)\n        progress.redo = True\n",
        "    else:\n        progress.steps = None\n        progress.redo = True\n",
    ),
    Bug(
        "a verdict is taken for all calls of a reply",
        "engine/fold.py",
        "                _note_verdict(progress, call, verdicts[call.call], answers)\n",
        "                _note_verdict(progress, call, event, answers)\n",
    ),
    # refused calls
    Bug(
        "a refused call is no gap",
        "engine/decide.py",
        "*gaps(state), *refused_gaps(state), *untraced_gaps(state),",
        "*gaps(state), *untraced_gaps(state),",
    ),
    Bug(
        "any later call makes a refused one good",
        "engine/fold.py",
        "if call_digest(refused.tool, refused.arguments) != made",
        "if False",
    ),
    # redone work
    Bug(
        "nothing repeats an earlier call",
        "agents/tool_calls.py",
        'if tool.effect == "effect" and not tool.poll and self._find_earlier(call) is not None:',
        "if False:",
    ),
    Bug(
        "a question does not show the earlier call",
        "agents/tool_calls.py",
        "            earlier=earlier,\n        )\n        return _PlannedCall(call, tool, pending=pending)",
        "        )\n        return _PlannedCall(call, tool, pending=pending)",
    ),
    Bug(
        "effects are not offered to a fork",
        "runtime/runner.py",
        "calls=await list_calls(journal, run, entries, state),",
        "calls=(),",
    ),
    Bug(
        "an effect in doubt is not offered to a fork",
        "engine/state.py",
        "return (EarlierCall(self.name, self.decoded_arguments, happened=False, at=self.at, task=task),)",
        "return ()",
    ),
    Bug(
        "a nested run does not know of earlier effects",
        "agents/nested.py",
        "acted=(*brief.earlier, *(call for round_, call in brief.acted.values() if round_ < brief.round)),",
        "acted=(),",
    ),
    Bug(
        "a later attempt is not told of earlier calls",
        "agents/loop.py",
        "earlier = show_earlier_calls(brief.earlier, nonce)",
        'earlier = ""',
    ),
    Bug(
        "results are not offered to a fork",
        "runtime/runner.py",
        "        offers=tuple(offered),\n",
        "        offers=(),\n",
    ),
    Bug(
        "answers of persons are not offered to a fork",
        "runtime/runner.py",
        "        replies=replies,\n",
        "        replies={},\n",
    ),
    Bug(
        "a block line of an earlier run is written again",
        "runtime/runner.py",
        "        origin=state.origin or run,\n",
        '        origin="",\n',
    ),
    # failures of the line
    Bug(
        "a failure of the line begins the attempt anew",
        "engine/decide.py",
        "keep=failure.kind in LINE_FAILURES)",
        "keep=False)",
    ),
    Bug(
        "a full quota begins the attempt anew",
        "engine/failure.py",
        'frozenset(("network", "timeout", "resource"))\n"""Kinds of failure that do not put',
        'frozenset(("network", "timeout"))\n"""Kinds of failure that do not put',
    ),
    Bug(
        "an attempt has idempotency keys of its own",
        "runtime/context.py",
        "/{self._work.task}/{request_digest}{count}",
        "/{self._work.task}/{self._work.number}/{request_digest}{count}",
    ),
    # effects in doubt
    Bug(
        "an effect that a person says happened is had again",
        "engine/fold.py",
        "            steps[call.step].answer(verdict.result)\n",
        "            del steps[call.step]\n",
    ),
    Bug(
        "an effect that did not happen is taken as done",
        "engine/fold.py",
        '        elif verdict.verdict == "again":\n            del steps[call.step]\n',
        '        elif verdict.verdict == "again":\n            steps[call.step].answer("so it is")\n',
    ),
    Bug(
        "one verdict is taken for all effects in doubt",
        "engine/fold.py",
        "        verdict = verdicts.get(call.call)\n",
        "        verdict = event\n",
    ),
    Bug(
        "what a person knows of an effect begins the attempt anew",
        "engine/fold.py",
        "            progress.redo = True\n            progress.resumes += 1\n            enqueue(state, progress)\n",
        "            progress.steps = None\n            enqueue(state, progress)\n",
    ),
    Bug(
        "what a person says of an effect ends its task",
        "engine/fold.py",
        "            progress.redo = True\n            progress.resumes += 1\n            enqueue(state, progress)\n",
        '            progress.result = encode_value("done")\n            _settle(state, progress, Status.DONE)\n',
    ),
    Bug(
        "a question about an effect does not name the call",
        "engine/decide.py",
        "        tool=first.tool,\n        arguments=first.arguments,\n",
        "",
    ),
    Bug(
        "a question about an effect has no key",
        "engine/decide.py",
        "                    key=step.key,\n",
        "",
    ),
    Bug(
        "effects in doubt are asked about one by one",
        "engine/decide.py",
        "    for task in state.failed_pending:\n        progress = state.tasks[task]\n",
        "    for task in list(state.failed_pending)[:1]:\n        progress = state.tasks[task]\n",
    ),
    Bug(
        "an effect in doubt is done again after a crash",
        "engine/fold.py",
        "        _judge(state, progress, EFFECT_IN_DOUBT)\n    else:\n        progress.steps = _kept_steps(progress)\n",
        "        pass\n    if True:\n        progress.steps = "
        "{at: step for at, step in _kept_steps(progress).items() if step.result is not None}\n",
    ),
    Bug(
        "an effect in doubt at the end is not named",
        "engine/view.py",
        "    own = tuple(_doubt_gap(progress, step) for _, step in progress.open_effects()) or (gap(state, progress),)",
        "    own = (gap(state, progress),)",
    ),
    Bug(
        "an orderly stop cuts effects",
        "runtime/runner.py",
        "while is_busy():",
        "while False:",
    ),
    Bug(
        "no tool is asked whether its call happened",
        "engine/decide.py",
        "    if progress.can_look_up():\n        return ev.RetryScheduled(progress.task.id, now + _wait_after",
        "    if False:\n        return ev.RetryScheduled(progress.task.id, now + _wait_after",
    ),
    Bug(
        "what a tool looked up is taken as absent",
        "runtime/context.py",
        "        if done is None:\n            del steps[number]\n",
        "        if True:\n            del steps[number]\n",
    ),
    # runs inside runs
    Bug(
        "the outer run ends for a reason of its own",
        "agents/nested.py",
        'ended=end.reason if end.reason in ("deadline", "budget") else "",',
        'ended="",',
    ),
    Bug(
        "the calls of a nested run before a question are not booked",
        "runtime/nested.py",
        "            used=state.ledger.spent.beyond(paid),\n",
        "            used=NOTHING,\n",
    ),
)
"""What the programs of workers and persons must tell about questions, effects in doubt and repetitions."""


def find_bug(bug: Bug, seeds: int = SEEDS) -> tuple[bool, float, str]:
    """Return whether a planted bug is found, how long it took, and what was said."""
    return hunt(bug, seeds, "tests.sim.people", ("--hunt",))


def hunt_planted(only: str) -> int:
    """Hunt the planted bugs whose names contain a text; return 0 if all are found."""
    bugs = [bug for bug in PEOPLE if only in bug.name]
    found = 0
    with ThreadPoolExecutor(2) as pool:
        for bug, (caught, seconds, said) in zip(bugs, pool.map(find_bug, bugs), strict=True):
            found += caught
            print(f"{'found ' if caught else 'MISSED'} {seconds:5.1f} s  {bug.name}: {said[:110]}", flush=True)
    print(f"{found} of {len(bugs)} planted bugs found within {SEEDS} seeds each")
    return 0 if found == len(bugs) else 1
