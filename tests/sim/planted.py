"""`python -m tests.sim.planted`: bugs planted on purpose, each of which the simulation must find.

An oracle that is missing is a bug that is invisible. Each bug is a change of text in a copy of the source, so it fails
loudly when the text it changes is no longer there.
"""

import argparse
import ast
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from msgspec import Struct

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]


class Bug(Struct, frozen=True):
    name: str
    file: str
    before: str
    after: str


BUGS = (
    # the end
    Bug(
        "an answer that was not written is no gap",
        "engine/decide.py",
        "missing = (*missing, unwritten_gap(state, unaffordable))",
        "pass",
    ),
    Bug(
        "a run whose results leave something out is complete",
        "engine/decide.py",
        "    inside = missing_gaps(state)\n",
        "    inside = ()\n",
    ),
    Bug(
        "what a result leaves out is forgotten",
        "engine/fold.py",
        "        state.partial[event.task] = None\n    if state.breakers:\n",
        "        pass\n    if state.breakers:\n",
    ),
    # what a person is asked
    Bug(
        "an answer in words is forgotten",
        "engine/fold.py",
        "        progress.replies = {**(progress.replies or {}), question.key: encode_value(event.result)}\n",
        "        pass\n",
    ),
    Bug(
        "any answer is taken for one of the options",
        "engine/admit.py",
        "options and not question.free_text and value not in options",
        "options and False",
    ),
    Bug(
        "an answer to the planner is forgotten",
        "engine/fold.py",
        "        state.planning.replies = {**state.planning.replies, question.text: said}\n",
        "        pass\n",
    ),
    Bug(
        "a question of the planner is a failure of it",
        "engine/fold.py",
        'event.duty == "plan" and event.failure.kind == "approval"',
        "False",
    ),
    # what a person changes in place
    Bug(
        "what needs a skipped task is skipped",
        "engine/fold.py",
        'if needed.skipped == "person" and need == "required"',
        'if False and need == "required"',
    ),
    Bug("a running task is skipped", "engine/admit.py", "Status.READY, Status.BACKING_OFF))", "*Status))"),
    Bug(
        "a task that was given away stays in its queue",
        "engine/fold.py",
        "        dequeue(state, progress)\n",
        "        pass\n",
    ),
    Bug("a task that was tried is given away", "engine/admit.py", "    if progress.attempt:\n", "    if False:\n"),
    Bug("what a person stopped is tried again", "engine/decide.py", '"deadline", "stopped"):', '"deadline"):'),
    # inputs
    Bug("a failed required input does not matter", "engine/fold.py", '(need == "required" and not good) or', ""),
    Bug("a failed optional input is waited for", "engine/fold.py", 'elif good or need == "optional":', "elif good:"),
    Bug(
        "an optional input is not waited for",
        "engine/fold.py",
        'progress.unmet += need != "quorum"',
        'progress.unmet += need == "required"',
    ),
    Bug("one quorum input is enough", "engine/fold.py", "reader.unmet -= not reader.wanted", "reader.unmet -= 1"),
    Bug("a quorum never gives up", "engine/fold.py", "reader.spare -= 1", "pass"),
    Bug("late tasks miss inputs settled before", "engine/fold.py", "if first else ()", "if not first else ()"),
    Bug(
        "a failed item does not count as settled",
        "engine/fold.py",
        "parent.items_open -= 1",
        "parent.items_open -= status is Status.DONE",
    ),
    Bug(
        "a worker gets only part of its inputs",
        "engine/view.py",
        "return tuple(needed_inputs)",
        "return tuple(needed_inputs[:1])",
    ),
    Bug("a worker gets quorum results that came later", "engine/fold.py", "progress.taken = tuple(", "_ = tuple("),
    Bug(
        "a list is joined only when every item is done",
        "engine/decide.py",
        "least = min(progress.task.at_least, progress.items)",
        "least = progress.items",
    ),
    Bug(
        "an item is worked on whose source failed",
        "engine/fold.py",
        "return None if item.status is Status.DONE else item.task.id",
        "return None",
    ),
    # attempts
    Bug("one attempt too many", "engine/decide.py", "progress.failures >= allowed", "progress.failures > allowed"),
    Bug("a permanent failure is retried", "engine/decide.py", " or failure.permanent or parked", " or parked"),
    Bug("no fallback worker", "engine/decide.py", "and (agent.spec or name) not in failed:", "and False:"),
    Bug(
        "what a person said of a call is forgotten",
        "engine/fold.py",
        "progress.answers = answers",
        "progress.answers = None",
    ),
    Bug(
        "a call that waits for leave loses its steps",
        "engine/fold.py",
        "progress.failure = event.failure\n        progress.status = Status.JUDGED",
        "progress.failure = event.failure\n        progress.status = Status.JUDGED\n        progress.steps = None",
    ),
    Bug(
        "leave begins the attempt anew",
        "engine/fold.py",
        "progress.failure = progress.failure_before\n    progress.redo = True\n    enqueue(state, progress)",
        "progress.failure = progress.failure_before\n    progress.redo = False\n    enqueue(state, progress)",
    ),
    Bug(
        "a plan that was never finished passes for whole",
        "engine/decide.py",
        "closed=True, unserved=lost)",
        "closed=True)",
    ),
    Bug("Retry-After is ignored", "engine/decide.py", "return max(jitter, failure.retry_after)", "return jitter"),
    Bug(
        "a planner's long Retry-After is waited for",
        "engine/decide.py",
        "plans) or cap is not None or late:",
        "plans) or cap is not None:",
    ),
    Bug(
        "the supervisor's Retry-After is ignored",
        "engine/decide.py",
        "return now + max(wait, duty.failure.retry_after)",
        "return now + wait",
    ),
    Bug(
        "the supervisor's back-off is not kept",
        "engine/fold.py",
        "    duty.timer = event.after\n",
        "    pass\n",
    ),
    Bug(
        "a run has no time for its answer",
        "engine/view.py",
        "    reserved = min(requested.policy.answer, max(0.0, longest))\n",
        "    reserved = 0.0\n",
    ),
    Bug(
        "without a plan nobody gets the request",
        "engine/decide.py",
        "    worker = _fallback_worker(state, failure)\n",
        '    worker = ""\n',
    ),
    Bug(
        "a fallback plan passes for a plan",
        "engine/decide.py",
        "unserved=() if is_only or is_meant_for_it else (doubt,),",
        "unserved=(),",
    ),
    Bug(
        "a fallback plan needs the model that is down",
        "engine/decide.py",
        "if not is_model_down or not roster.planner:",
        "if True:",
    ),
    Bug(
        "the answer's Retry-After outlives the deadline",
        "engine/decide.py",
        "cap is None and retry_at < last:",
        "cap is None and now < last:",
    ),
    Bug(
        "nobody gives up on a hanging worker",
        "engine/decide.py",
        "if state.timers and now >= state.timers[0][0]:",
        "if False:",
    ),
    Bug(
        "backing off never ends",
        "engine/decide.py",
        "if progress.status is Status.BACKING_OFF:",
        "if progress.status is Status.WAITING:",
    ),
    Bug(
        "the refiner is not told what failed",
        "engine/owed.py",
        "progress.failure.message if progress.failure is not None else",
        '"" if progress.failure is not None else',
    ),
    Bug("a late report of an earlier attempt counts", "engine/admit.py", " or not is_owed:", ":"),
    # limits
    Bug("one slot too many", "engine/decide.py", "limits.width - state.running", "limits.width + 1 - state.running"),
    Bug("one slot too few", "engine/decide.py", "limits.width - state.running", "limits.width - 1 - state.running"),
    Bug("capacity is off by one", "engine/decide.py", "load >= agent.concurrency)", "load > agent.concurrency)"),
    Bug("a slot is never given back", "engine/fold.py", "    state.running -= 1\n", ""),
    Bug("a worker's slot is never given back", "engine/fold.py", "    state.load[progress.worker] -= 1\n", ""),
    Bug("a pause is ignored", "engine/decide.py", " and not state.paused", ""),
    Bug(
        "a pause does not keep the supervisor from working",
        "engine/decide.py",
        "if state.paused or state.input",
        "if state.input",
    ),
    Bug(
        "work starts before the plan is approved",
        "engine/decide.py",
        "state.ready_queues and state.approved and",
        "state.ready_queues and",
    ),
    # money
    Bug(
        "unknown use is free",
        "engine/budget.py",
        "reserved if used is None else used",
        "NOTHING if used is None else used",
    ),
    Bug("a negative bill is believed", "engine/admit.py", "used.micros >= 0", "True"),
    Bug(
        "the floor is not kept for the answer",
        "engine/decide.py",
        "covers(reserve, keep=floor):\n        cap =",
        "covers(reserve):\n        cap =",
    ),
    Bug(
        "steps do not ask for money",
        "engine/admit.py",
        "if not state.ledger.covers(more",
        "if False and not state.ledger.covers(more",
    ),
    Bug(
        "an open step's reservation is forgotten",
        "engine/fold.py",
        "state.ledger.lose(step.reserved, step.expected)",
        "pass",
    ),
    Bug("the cap may be passed by one call", "engine/budget.py", "taken + more + keep <= cap", "taken + keep <= cap"),
    # breakers, of workers and of models
    Bug(
        "bad work counts for a breaker",
        "engine/fold.py",
        "if failure.kind in OUTAGES and",
        'if failure.kind in (*OUTAGES, "logic") and',
    ),
    Bug(
        "a refusal counts for a breaker",
        "engine/fold.py",
        "if failure.kind in OUTAGES and",
        "if failure.refusal is not None or failure.kind in OUTAGES and",
    ),
    Bug(
        "a probe that says nothing of the line is waited for",
        "engine/fold.py",
        "breakers.forget_probe(breaker)  # it says",
        "pass  # it says",
    ),
    Bug(
        "a mistake in code is tried again",
        "code_errors.py",
        "permanent=True, code_error=mistake",
        "code_error=mistake",
    ),
    Bug(
        "a breaker opens one failure early",
        "engine/breaker.py",
        "breaker.row >= numbers.consecutive",
        "breaker.row + 1 >= numbers.consecutive",
    ),
    Bug(
        "a breaker opens one failure late",
        "engine/breaker.py",
        "breaker.row >= numbers.consecutive",
        "breaker.row > numbers.consecutive",
    ),
    Bug(
        "a breaker never admits a probe",
        "engine/breaker.py",
        '"half-open" if now >= breaker.until else "open"',
        '"open"',
    ),
    Bug("two probes at once", "engine/breaker.py", "if now < breaker.leased:", "if False:"),
    Bug(
        "a success does not close a breaker",
        "engine/breaker.py",
        "if breaker.opened:  # the probe",
        "if False:  # the probe",
    ),
    # runs that are part of another one, and callers in another process
    Bug(
        "attempts in the run around it are not counted",
        "engine/fold.py",
        "    progress.attempt = earlier.count\n",
        "",
    ),
    Bug(
        "what attempts in the run around it changed is forgotten",
        "engine/fold.py",
        "    progress.effects = dict(earlier.effects)\n",
        "",
    ),
    Bug(
        "what failed in the run around it is not told",
        "engine/fold.py",
        "    progress.failure = earlier.failure\n",
        "",
    ),
    Bug(
        "a crash counts for an attempt that waits for a run of its own",
        "engine/fold.py",
        "counts = crashed and not progress.waits_for_run()",
        "counts = crashed",
    ),
    Bug(
        "a command that was carried out is forgotten",
        "engine/fold.py",
        "        state.commands.add(event.command)\n",
        "        pass\n",
    ),
    Bug(
        "calls of the caller's tools need a task first",
        "engine/decide.py",
        "may_answer = done or (not state.tasks and callers_tools(state))",
        "may_answer = done",
    ),
    Bug(
        "an answer without a task is a failed run",
        "engine/decide.py",
        "done=done or state.answer is not None, unaffordable",
        "done=done, unaffordable",
    ),
    Bug(
        "a plan without tasks is refused although the answer may call tools",
        "engine/admit.py",
        " or not report.closed or callers_tools(state)",
        " or not report.closed",
    ),
    # kept steps, effects in doubt and refusals
    Bug(
        "a retry after a lost line begins anew",
        "engine/decide.py",
        "keep=failure.kind in LINE_FAILURES)",
        "keep=False)",
    ),
    Bug(
        "a retry that keeps its steps has none",
        "engine/fold.py",
        "        progress.steps = _steps_to_go_on_from(progress)\n",
        "        progress.steps = {}\n",
    ),
    Bug(
        "a step of a kept attempt is made again",
        "runtime/context.py",
        "        self._recorded = brief.steps or {}\n",
        "        self._recorded = {} if brief.keep else brief.steps or {}\n",
    ),
    Bug(
        "an uncertain failure counts as an attempt",
        "engine/fold.py",
        'progress.failures += failure.kind != "uncertain"',
        "progress.failures += 1",
    ),
    Bug(
        "no tool is asked what became of its effect",
        "engine/state.py",
        "return self.looks < _MOST_LOOKS and any(",
        "return False and any(",
    ),
    Bug(
        "a tool is asked for ever",
        "engine/state.py",
        "return self.looks < _MOST_LOOKS and any(",
        "return any(",
    ),
    Bug(
        "an effect that happened is made again after a look",
        "runtime/context.py",
        "        if done is None:\n            del steps[number]\n",
        "        if True:\n            del steps[number]\n",
    ),
    Bug(
        "an effect nobody knows of is made again",
        "runtime/context.py",
        'number, "unknown"))',
        'number, "absent"))',
    ),
    Bug(
        "a tool that cannot tell is asked again",
        "engine/fold.py",
        "        steps[event.step].look = False\n",
        "        pass\n",
    ),
    Bug(
        "an effect to be looked up is left to another worker",
        "engine/decide.py",
        "must_stay = progress.redo or (progress.steps is not None and progress.in_doubt())",
        "must_stay = progress.redo",
    ),
    Bug(
        "a verdict on an effect is for all of them",
        "engine/fold.py",
        "        verdict = verdicts.get(call.call)\n",
        "        verdict = verdicts.get(call.call, event)\n",
    ),
    Bug(
        "an effect that is done is made again",
        "engine/fold.py",
        "            steps[call.step].answer(verdict.result)\n",
        "            del steps[call.step]\n",
    ),
    Bug(
        "an effect that is to be made again is done",
        "engine/fold.py",
        '        elif verdict.verdict == "again":\n            del steps[call.step]\n',
        '        elif verdict.verdict == "again":\n            steps[call.step].answer(None)\n',
    ),
    Bug(
        "an effect without a verdict is not asked about again",
        "engine/fold.py",
        "        elif progress.in_doubt():\n            progress.status",
        "        elif False:\n            progress.status",
    ),
    Bug(
        "one effect in doubt hides the others",
        "engine/decide.py",
        "        for number, step in progress.open_effects():\n            arguments",
        "        for number, step in progress.open_effects()[:1]:\n            arguments",
    ),
    Bug(
        "effects of one task at a time are asked about",
        "engine/decide.py",
        '        if progress.failure is None or progress.failure.kind != "uncertain" or progress.can_look_up():\n            continue\n',
        '        if pending or progress.failure is None or progress.failure.kind != "uncertain" or progress.can_look_up():\n            continue\n',
    ),
    Bug(
        "an effect in doubt fails its task though a person could be asked",
        "engine/decide.py",
        'if state.requested.policy.uncertain == "fail" or',
        "if True or",
    ),
    Bug(
        "the time runs out while a person is asked",
        "engine/decide.py",
        "if is_late and state.input is None:",
        "if is_late:",
    ),
    Bug(
        "tasks start after the deadline while a person is asked",
        "engine/decide.py",
        " and not state.paused and not is_late:",
        " and not state.paused:",
    ),
    Bug(
        "a failed task is given up while a late answer is waited for",
        "engine/decide.py",
        "    if state.paused or is_late:",
        "    if state.paused:",
    ),
    Bug(
        "a looked up effect stays in doubt when the time runs out",
        "engine/fold.py",
        "        if tried and not was_in_doubt and not progress.in_doubt():\n",
        '        if tried and (progress.failure is None or progress.failure.kind != "uncertain"):\n',
    ),
    Bug(
        "what failed before is forgotten when a person answers",
        "engine/fold.py",
        "        progress.failure_before = progress.failure\n",
        "        progress.failure_before = None\n",
    ),
    Bug(
        "a refused call is forgotten",
        "engine/fold.py",
        "    if answers[call.key]:\n        progress.refusals",
        "    if False:\n        progress.refusals",
    ),
    Bug(
        "any call of a tool makes a refusal good",
        "engine/fold.py",
        "call_digest(refused.tool, refused.arguments) != made",
        "refused.tool != step.name",
    ),
    Bug(
        "no call makes a refusal good",
        "engine/fold.py",
        "call_digest(refused.tool, refused.arguments) != made",
        "True",
    ),
    Bug(
        "a run with a refused call is complete",
        "engine/decide.py",
        "    missing = (*gaps(state), *refused_gaps(state), *untraced",
        "    missing = (*gaps(state), *untraced",
    ),
    Bug(
        "a call has another key in the next attempt",
        "runtime/context.py",
        "}/{self._work.task}/{request_digest}{count}",
        "}/{self._work.task}/{self._work.number}/{request_digest}{count}",
    ),
    # crashes
    Bug(
        "an effect in doubt is done again",
        "engine/fold.py",
        "        _judge(state, progress, EFFECT_IN_DOUBT)\n    else:\n        progress.steps = _kept_steps(progress)\n",
        "        pass\n    if True:\n        progress.steps = "
        "{at: step for at, step in _kept_steps(progress).items() if step.result is not None}\n",
    ),
    Bug(
        "an effect is done again by the next attempt",
        "engine/state.py",
        'if step.kind == "tool" and step.effect == "effect" and step.result is not None and step.good:',
        "if False:",
    ),
    Bug(
        "an effect whose result is no JSON is not recorded",
        "runtime/context.py",
        'result = encode_value(done.value) if effect == "read" else encode_or_text(done.value)[0]',
        "result = encode_value(done.value)",
    ),
    Bug(
        "recorded steps are lost on resume",
        "engine/fold.py",
        'if step.result is not None or step.effect == "effect"}',
        'if step.result is None and step.effect == "effect"}',
    ),
    Bug(
        "a resumed attempt counts as another",
        "engine/fold.py",
        "\n        progress.redo = True",
        "\n        progress.redo = False",
    ),
    Bug(
        "an orderly stop counts as a crash",
        "engine/fold.py",
        "    progress.crashes += counts\n",
        "    progress.crashes += 1\n",
    ),
    Bug("crashes are not counted", "engine/fold.py", "    progress.crashes += counts\n", ""),
    Bug("crashes of an earlier attempt count", "engine/fold.py", "    progress.crashes = 0\n", ""),
    Bug(
        "an attempt is resumed however often its process died",
        "engine/decide.py",
        "    if progress.crashes <= state.requested.policy.limits.resumes:\n        return None\n",
        "    return None\n",
    ),
    Bug(
        "an orderly stop is not written down",
        "runtime/run_loop.py",
        "state.ended is None and state.released_at is None and",
        "False and",
    ),
    Bug(
        "the time a stopped run stood still counts",
        "engine/fold.py",
        "_give_time(state, stood_still)",
        "_give_time(state, 0.0)",
    ),
    Bug("planning is not taken up again", "engine/fold.py", 'duty.next = why or "first"', "desk.next = None"),
    Bug(
        "nobody is told of the resume",
        "runtime/runner.py",
        "more = also if lease.epoch == 1 else (ev.RunResumed(lease.epoch), *also)",
        "more = also",
    ),
    Bug("a zombie may write", "journal/memory.py", "stream.epoch != lease.epoch or ", ""),
    Bug(
        "work begins before it is written",
        "runtime/run_loop.py",
        "            if self._urgent:\n                await self._write()\n            self._align(jobs)",
        "            self._align(jobs)\n            if self._urgent:\n                await self._write()",
    ),
    Bug(
        "a step is confirmed before it is written",
        "runtime/run_loop.py",
        "self._waiting.append(future)",
        "future.set_result(None)",
    ),
    Bug(
        "entries are dropped when the disk is full",
        "runtime/run_loop.py",
        "            await asyncio.sleep(pause)\n",
        "            break\n",
    ),
    # the run
    Bug(
        "timers that came due while writing are missed",
        "runtime/run_loop.py",
        "wake_at(self.state, decided)",
        "wake_at(self.state, self._clock())",
    ),
    Bug("nobody looks at the clock", "runtime/run_loop.py", "if self._alarm is None and at is not None:", "if False:"),
    Bug(
        "the answer is begun too early",
        "engine/decide.py",
        "    if state.unsettled:\n        return None\n    if _may_replan",
        "    if _may_replan",
    ),
    Bug(
        "gaps are kept quiet",
        "engine/decide.py",
        'cause or "gaps", missing, cap)',
        'cause or "gaps", cap=cap)',
    ),
    Bug(
        "the deadline does not stop anybody",
        "engine/fold.py",
        '    _stop_all(state, but="answer" if goes_on else "")\n    for progress',
        "    for progress",
    ),
    Bug(
        "a question can be answered after the deadline",
        "engine/fold.py",
        "state.planning.next = None\n    state.input = None",
        "state.planning.next = None",
    ),
    Bug(
        "plans are not checked",
        "engine/admit.py",
        "    errors = linted.errors\n",
        "    errors: tuple[ev.Finding, ...] = ()\n",
    ),
    Bug(
        "a planner may try for ever",
        "engine/decide.py",
        "_is_given_up(duty, state.requested.policy.limits.plans) or cap is not None or",
        "cap is not None or",
    ),
    # several calls of one reply that need leave
    Bug(
        "what a person said of another call of the reply is forgotten",
        "engine/fold.py",
        "            if call.call in verdicts:\n",
        "            if call.call == asked.calls[0].call:\n",
    ),
    Bug(
        "a verdict is taken for another call",
        "engine/fold.py",
        "_note_verdict(progress, call, verdicts[call.call], answers)",
        "_note_verdict(progress, call, event, answers)",
    ),
    Bug(
        "the cap that ended a run is not named",
        "engine/decide.py",
        "cap = unaffordable or state.cap_reached",
        "cap = None",
    ),
)


NESTED = (
    Bug(
        "a run inside another stays open when its attempt is cancelled",
        "runtime/nested.py",
        "await driver.cancel(nested_run, job)",
        "pass",
    ),
)
"""What must become of runs inside a run; found within 1,500 seeds, for few of them cancel an attempt that waits."""


MONEY = (
    Bug(
        "calls of an unknown model do not start slowly",
        "models/reply_limit.py",
        "return self.is_trusted(card) or self.under_way <= self.kept_in_row",
        "return True",
    ),
    Bug(
        "what a model wrote beyond its limit is not reserved",
        "models/reply_limit.py",
        "return limit if self.keeps_limit(card) else max(limit, self.longest)",
        "return limit",
    ),
    Bug(
        "a turn is never given back",
        "agents/spending.py",
        "            self._spending.observations.leave(self._turn)\n",
        "            pass\n",
    ),
    Bug(
        "a reply may be longer than was reserved",
        "agents/spending.py",
        "self._settings[key] = structs.replace(request.settings, max_tokens=limit)",
        "self._settings[key] = structs.replace(request.settings, max_tokens=2 * limit)",
    ),
    Bug(
        "what tools say of themselves is not reckoned with",
        "models/token_count.py",
        "tokens = sum([sum(measure(text)) + _FRAME for text in texts])",
        "tokens = 0.0",
    ),
    Bug(
        "what a failed call may have cost is forgotten",
        "agents/spending.py",
        "return None if error.billed else Amount(calls=1)",
        "return Amount(calls=1)",
    ),
    Bug(
        "calls of the supervisor are not reserved",
        "agents/supervision.py",
        "        if await self.context.hold(claim, extra=extra):",
        "        claim.held = claim.wanted\n        if claim:",
    ),
    Bug(
        "a call that was shrunk is made at full length",
        "agents/spending.py",
        "self.limit_reply(model, reservation.request, limit)",
        "self.limit_reply(model, reservation.request, 8192)",
    ),
    Bug(
        "what a nested team used before a question is forgotten",
        "runtime/nested.py",
        'WorkFailed(Failure("approval", text, question=question, gaps=nested.waiting), nested.used)',
        'WorkFailed(Failure("approval", text, question=question, gaps=nested.waiting), NOTHING)',
    ),
    Bug(
        "what a nested team used before a question is charged again after it",
        "runtime/nested.py",
        "            paid += event.used or NOTHING\n",
        "            pass\n",
    ),
    Bug(
        "a crash gives back what a nested team has",
        "engine/fold.py",
        "progress.carried = {**(progress.carried or {}), number: step.reserved}",
        "state.ledger.settle(step.reserved, NOTHING)",
    ),
    Bug(
        "a lost call costs nothing",
        "engine/budget.py",
        "booked = reserved if expected is None else expected",
        "booked = NOTHING",
    ),
    Bug(
        "an estimate for a lost call is told as a bill",
        "engine/budget.py",
        "        self.lost += booked\n",
        "        pass\n",
    ),
    Bug(
        "lost calls of a nested team are told as a bill outside",
        "runtime/nested.py",
        "return lost.beyond(sum(known, NOTHING))",
        "return NOTHING",
    ),
)
"""What teams inside teams must find, by what a provider really bills."""

EFFECTS = (
    Bug(
        "an effect whose result cannot be kept failed",
        "agents/tool_calls.py",
        '    return Returned(body, note="" if whole else _AS_TEXT)',
        '    return Returned(body) if whole else Returned(error="its result cannot be kept")',
    ),
    Bug(
        "an effect whose result is large failed",
        "agents/tool_calls.py",
        'if size > LARGEST and tool.effect == "read":',
        "if size > LARGEST:",
    ),
    Bug(
        "the same effect in one step is had several times",
        "agents/tool_calls.py",
        "                if same_as != number:",
        "                if False:",
    ),
    Bug(
        "an effect that was had is had again unasked",
        "agents/tool_calls.py",
        "        return same or self._repeats(call)",
        "        return self._repeats(call)",
    ),
    Bug(
        "a question of a team inside is not asked outside",
        "agents/nested.py",
        "if run.state.ended is None and run.state.input is not None:",
        "if False:",
    ),
    Bug(
        "text from outside does not taint",
        "agents/tool_calls.py",
        "            self.tainted = True\n",
        "            pass\n",
    ),
    Bug(
        "a tainted effect asks nobody",
        "agents/tool_calls.py",
        "if not self.tainted or not self.brief.ask_if_tainted:",
        "if True:",
    ),
    Bug(
        "a person's no is taken for a yes",
        "agents/tool_calls.py",
        "if refusal := answers[key]:",
        "if False and (refusal := answers[key]):",
    ),
    Bug(
        "leave for one call is leave for all of them",
        "agents/tool_calls.py",
        "return digest(*which, str(times)), times",
        "return digest(*which), times",
    ),
)
"""What a bank's own book must tell about effects and the questions before them."""


def hunt(
    bug: Bug, seeds: int, module: str = "tests.sim.hunt", arguments: tuple[str, ...] = ()
) -> tuple[bool, float, str]:
    """Whether the simulation finds a bug, how long it took, and what it said."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        target = copy / "chargehand" / bug.file
        compiled = shutil.ignore_patterns(f"{target.stem}.*.pyc")  # all others stay, which saves a second of compiling
        shutil.copytree(ROOT / "src" / "chargehand", copy / "chargehand", ignore=compiled)
        text = target.read_text()
        if text.count(bug.before) != 1:
            return False, 0.0, f"its text stands {text.count(bug.before)} times in {bug.file}"
        planted = text.replace(bug.before, bug.after)
        ast.parse(planted)  # what does not even compile would pass for found
        target.write_text(planted)
        begun = time.monotonic()
        command = [sys.executable, "-m", module, *arguments, str(seeds)]
        environment = {"PYTHONPATH": f"{copy}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
        except subprocess.TimeoutExpired as late:  # the others are hunted all the same
            return False, late.timeout, f"not found in {late.timeout:.0f} s"
        said = (done.stdout + done.stderr).strip().splitlines()
        return done.returncode == 1, time.monotonic() - begun, said[-1] if said else "nothing"


def _hunted(bug: Bug, seeds: int) -> tuple[bool, float, str]:
    if bug in (*MONEY, *NESTED):
        return hunt(bug, seeds, "tests.sim.nested", ("--hunt",))
    if bug in EFFECTS:
        return hunt(bug, seeds, "tests.sim.effects", ("--hunt",))
    return hunt(bug, seeds)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.planted", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds each bug may survive (default 2000)")
    parser.add_argument("--only", default="", help="only bugs whose name contains this")
    options = parser.parse_args()
    bugs = [bug for bug in (*BUGS, *MONEY, *NESTED, *EFFECTS) if options.only in bug.name]
    found = 0
    with ThreadPoolExecutor(2) as pool:
        hunts = pool.map(partial(_hunted, seeds=options.seeds), bugs)
        for bug, (caught, seconds, said) in zip(bugs, hunts, strict=True):
            found += caught
            print(f"{'found ' if caught else 'MISSED'} {seconds:5.1f} s  {bug.name}: {said[:110]}", flush=True)
    print(f"{found} of {len(bugs)} planted bugs found within {options.seeds} seeds each")
    return 0 if found == len(bugs) else 1


if __name__ == "__main__":
    sys.exit(main())
