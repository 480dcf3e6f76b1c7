// The fold of what happens to tasks: attempts, steps, retries, items.

import type { Fold } from "./fold.ts";
import { callsIn, canLookUp, endAttempt, endWaits, newItem, openAttempt, settle } from "./run_changes.ts";
import { add, amountOf, awaitNestedEnd, loseCarried, nothing, startsRun } from "./run_money.ts";
import { type Attempt, itemsOf } from "./run_state.ts";

const attemptStarted: Fold = (_run, event, { at, task }) => {
  if (!task) return;
  const last = task.attempts.at(-1);
  if (task.attempts.some((attempt) => attempt.attempt === event.attempt)) {
    // it goes on, and makes the calls again that never came back
    const lost = last!.steps.filter((step) => step.ended === undefined && step.arguments != null);
    task.wantedCalls.push(...lost.map((step) => ({ id: step.call, name: step.name, arguments: step.arguments })));
  } else {
    task.wantedCalls = [];
    task.failureBefore = task.failure;
  }
  if (canLookUp(task)) task.looks += 1;
  endWaits(task, at);
  const attempt: Attempt = {
    attempt: event.attempt, worker: event.worker, instruction: task.instruction, began: at, ending: "under way",
    prompts: [], steps: [], used: nothing(), nested: [],
  };
  task.attempts.push(attempt);
  task.worker = event.worker;
  task.began ??= at;
  task.status = "running";
  task.reserved = amountOf(event.reserve) ?? nothing();
  task.expected = amountOf(event.expected);
};

const stepStarted: Fold = (run, event, { at, task }) => {
  if (!task) return;
  task.reserved = nothing(); // from its first step on an attempt reserves call by call
  const reserved = amountOf(event.reserve) ?? nothing();
  task.carried.delete(event.step);
  task.openSteps.set(event.step, {
    reserved, expected: amountOf(event.expected) ?? reserved, effect: event.effect ?? "read", kind: event.kind ?? "tool",
    resumable: event.resumable ?? false,
  });
  if (event.effect === "effect") task.doubts.set(event.step, event.look ?? false);
  const attempt = openAttempt(task);
  if (!attempt) return;
  const wanted = event.call
    ? task.wantedCalls.findLastIndex((call) => call.id === event.call)
    : task.wantedCalls.findIndex((call) => call.name === event.name);
  const call = wanted < 0 ? undefined : task.wantedCalls.splice(wanted, 1)[0];
  attempt.steps.push({
    step: event.step, name: event.name, kind: event.kind ?? "tool", effect: event.effect ?? "read", began: at,
    call: event.call ?? "", arguments: call?.arguments, good: true, used: nothing(),
  });
  if (!startsRun({ kind: event.kind })) return;
  const request = (event.request ?? "").slice(0, 8);
  attempt.nested.push(`${run.run}/${task.id}/${event.attempt}/${event.step}/${request}`);
};

const stepEnded: Fold = (run, event, { at, task, entry }) => {
  if (!task) return;
  const used = event.used ?? task.openSteps.get(event.step)?.reserved;
  add(run.spent, used);
  const isFinished = event.type === "step.finished";
  if (isFinished) task.doubts.delete(event.step);
  if (isFinished) task.openSteps.delete(event.step);
  else task.openSteps.set(event.step, { ...task.openSteps.get(event.step)!, reserved: nothing(), expected: nothing() });
  const attempt = openAttempt(task);
  if (!attempt) return;
  add(attempt.used, used);
  add(task.used, used);
  for (const step of attempt.steps.filter((each) => each.step === event.step)) {
    step.ended = at;
    step.used = nothing();
    add(step.used, used);
    step.good = isFinished && event.good !== false;
    if (isFinished) {
      step.result = event.result;
      step.seq = entry.seq;
      task.wantedCalls.push(...callsIn(event.result));
    }
  }
};

const stepLookedUp: Fold = (_run, event, { task }) => {
  if (event.outcome === "absent") task?.doubts.delete(event.step);
  else task?.doubts.set(event.step, false);
};

const attemptSucceeded: Fold = (run, event, { at, task, entry }) => {
  if (!task) return;
  endAttempt(run, task, event, at, "succeeded");
  task.result = event.result;
  task.resultSeq = entry.seq;
  settle(run, task, "done", at);
};

const attemptFailed: Fold = (run, event, { at, task }) => {
  if (!task) return;
  const isQuestion = event.failure.kind === "approval";
  if ((event.failure.running ?? []).some(startsRun)) awaitNestedEnd(run, task);
  const attempt = endAttempt(run, task, event, at, isQuestion ? "asked" : "failed");
  task.failure = event.failure;
  task.status = "judged";
  if (isQuestion) task.waits.push({ kind: "person", began: at });
  else if (attempt) attempt.failure = event.failure;
};

/** Its process died too often under it. */
const attemptAbandoned: Fold = (run, event, { task }) => {
  if (!task) return;
  loseCarried(run, task);
  task.failure = event.failure;
  task.status = "judged";
};

const retryScheduled: Fold = (run, event, { at, task, entry }) => {
  if (!task) return;
  const wait = Math.max(0, event.after - run.start - at);
  if (!event.keep) task.doubts.clear();
  task.retries.push({ at, wait, worker: event.worker ?? "" });
  if (event.worker) task.worker = event.worker;
  const isWait = event.after > entry.at;
  task.status = isWait ? "backing off" : "ready";
  if (isWait) task.waits.push({ kind: "backoff", began: at });
  else task.ready = at;
};

const backoffEnded: Fold = (_run, _event, { at, task }) => {
  if (!task) return;
  endWaits(task, at);
  task.status = "ready";
  task.ready = at;
};

const expanded: Fold = (run, event, { at, task }) => {
  if (!task) return;
  task.status = "expanded";
  task.items = event.count;
  const source = run.tasks.get(task.forEach);
  for (let index = 0; index < event.count; index += 1) {
    const item = newItem(run, task, index);
    run.tasks.set(item.id, item);
    const missing = source?.result === undefined && run.tasks.get(`${task.forEach}[${index}]`)?.status !== "done";
    if (missing) continue;
    item.status = "ready";
    item.ready = at;
  }
};

const joined: Fold = (run, _event, { at, task }) => {
  if (!task) return;
  const starts = itemsOf(run, task).flatMap((item) => item.began ?? []);
  if (starts.length) task.ready = Math.min(...starts);
  settle(run, task, "done", at);
};

const reused: Fold = (run, event, { at, task, entry }) => {
  if (!task) return;
  task.reused = { run: event.run, task: event.source };
  task.result = event.result;
  task.resultSeq = entry.seq;
  settle(run, task, "done", at);
};

const taskFailed: Fold = (run, event, { at, task }) => {
  if (!task) return;
  task.failure = event.failure;
  endWaits(task, at);
  settle(run, task, "failed", at);
};

const taskSkipped: Fold = (run, event, { at, task }) => {
  if (!task) return;
  task.skipped = event.reason;
  task.because = event.because;
  endWaits(task, at);
  settle(run, task, "skipped", at);
};

const reassigned: Fold = (_run, event, { task }) => {
  if (task) task.worker = event.worker;
};

export const TASK_FOLDS: Record<string, Fold> = {
  "attempt.started": attemptStarted,
  "step.started": stepStarted,
  "step.finished": stepEnded,
  "step.failed": stepEnded,
  "step.looked_up": stepLookedUp,
  "attempt.succeeded": attemptSucceeded,
  "attempt.failed": attemptFailed,
  "attempt.abandoned": attemptAbandoned,
  "task.retry_scheduled": retryScheduled,
  "task.backoff_ended": backoffEnded,
  "task.expanded": expanded,
  "task.joined": joined,
  "task.reused": reused,
  "task.failed": taskFailed,
  "task.skipped": taskSkipped,
  "task.reassigned": reassigned,
};
