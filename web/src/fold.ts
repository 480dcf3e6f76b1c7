// The entries of a run folded into what the page shows. Pure: the same entries give the same run, up to any entry.
// It mirrors `runtime/trace.py`; tests/page/test_parity.py holds the two against each other.

import type { Entry, Event, PlannedTask } from "./events.ts";
import { PERSON_FOLDS } from "./fold_person.ts";
import { TASK_FOLDS } from "./fold_tasks.ts";
import {
  IN_DOUBT, addTasks, beginRun, canLookUp, dutyKey, endDuty, endWaits, isWorkUnderWay, openAttempt, stopAll, takePlan,
} from "./run_changes.ts";
import {
  add, amountOf, attemptStopped, awaitNestedEnd, closeAttempt, loseCarried, loseStopped, nothing,
} from "./run_money.ts";
import { type Duty, type Prompt, type Run, SETTLED, type Task, openQuestion } from "./run_state.ts";

/** Apply one entry, in place. */
export function foldEntry(run: Run, entry: Entry): void {
  const event = entry.event;
  const before = run.at;
  const at = event.type === "run.requested" ? 0 : entry.at - run.start;
  run.seq = entry.seq;
  run.at = at;
  const task = event.task ? run.tasks.get(event.task) : undefined;
  FOLDS[event.type]?.(run, event, { at, before, entry, task });
  if (task && SETTLED.has(task.status) && task.ended === undefined) task.ended = at;
}

/** The run after all entries up to `until`, a number of an entry. */
export function foldEntries(name: string, entries: Iterable<Entry>, until = Infinity): Run {
  const run = beginRun(name);
  for (const entry of entries) {
    if (entry.seq > until) break;
    foldEntry(run, entry);
  }
  return run;
}

/** A run whose process is gone: nothing of it is under way, as for whoever resumes it. */
export function asInterrupted(name: string, entries: Entry[]): Run {
  const run = foldEntries(name, entries);
  const last = entries.at(-1);
  if (last) foldEntry(run, { ...last, event: { type: "run.resumed" } });
  return run;
}

/** Where an event is: when, after what, in which entry, about which task. */
type Moment = { at: number; before: number; entry: Entry; task?: Task };
export type Fold = (run: Run, event: Event, moment: Moment) => void;

// --- the run as a whole

const requested: Fold = (run, event, { entry }) => {
  run.start = entry.at;
  run.goal = event.goal;
  run.team = event.team ?? "";
  run.deadline = event.deadline;
  run.budget = event.budget ?? {};
  run.labels = event.labels ?? {};
  run.parent = event.parent?.run ?? "";
  run.warnings = event.warnings ?? [];
  for (const agent of event.roster?.agents ?? []) run.agents.set(agent.name, agent);
  if (event.plan) takePlan(run, event.plan, 0);
  for (const task of run.tasks.values()) task.failure = event.earlier?.failure;
};

const resumed: Fold = (run, _event, { at, before }) => {
  const isAsking = openQuestion(run) && !isWorkUnderWay(run);
  const cause = isAsking ? "asked" : run.released ? "released" : "lost";
  run.interruptions.push({ last: before, resumed: at, cause });
  run.released = false;
  loseStopped(run);
  stopAll(run, before, (task) => {
    if (task.status === "refining") {
      endWaits(task, before);
      task.status = "judged";
      return;
    }
    const inDoubt = task.doubts.size > 0 && !canLookUp(task);
    closeAttempt(run, task, { isCutOff: true, carries: !inDoubt });
    if (inDoubt) task.failure = IN_DOUBT;
    task.status = inDoubt ? "judged" : "ready";
  });
};

/** Attempts that are cut off; one with an effect under way is in doubt. */
function cutOff(run: Run, at: number): void {
  for (const task of run.tasks.values()) endWaits(task, at);
  stopAll(run, at, (task) => {
    if (task.status !== "running") return;
    if (task.doubts.size) task.failure = IN_DOUBT;
    awaitNestedEnd(run, task);
    closeAttempt(run, task, { isCutOff: true });
  });
  for (const task of run.tasks.values()) loseCarried(run, task);
}

const timeRanOut: Fold = (run, _event, { at }) => {
  cutOff(run, at);
  for (const task of run.tasks.values()) {
    if (SETTLED.has(task.status)) continue;
    const isJudged = task.status === "judged" || task.status === "asking";
    const wasInDoubt = isJudged && task.failure?.kind === "uncertain";
    task.status = task.attempts.length ? "failed" : "skipped";
    if (!task.attempts.length) task.skipped = "deadline";
    else if (!wasInDoubt && !task.doubts.size) {
      task.failure = { kind: "deadline", message: "the time ran out before it was finished" };
    }
  }
};

const ended: Fold = (run, event, { at }) => {
  cutOff(run, at);
  loseStopped(run);
  run.ended = { ending: event.ending, reason: event.reason, gaps: event.gaps ?? [], cap: event.cap };
  for (const task of run.tasks.values()) {
    if (!SETTLED.has(task.status) && task.status !== "expanded") task.status = "unfinished";
  }
};

// --- the supervisor

const supervisionStarted: Fold = (run, event, { at, task }) => {
  const key = dutyKey(event.duty, event.task);
  const open = run.openDuties.get(key);
  if (event.duty === "plan" && event.why !== "failed" && !open && !run.planRedo) run.round += 1;
  if (event.duty === "plan") run.planRedo = false;
  if (open && open.number === event.number) {
    add(open.reserved, event.reserve);
    open.expected = amountOf(event.expected);
    return;
  }
  const duty: Duty = {
    duty: event.duty, number: event.number, task: event.task ?? "", why: event.why ?? "first", began: at,
    ending: "under way", findings: [], tasks: [], instruction: "", prompts: [], calls: [], used: nothing(),
    reserved: open ? open.reserved : nothing(),
  };
  add(duty.reserved, event.reserve);
  duty.expected = amountOf(event.expected);
  run.openDuties.set(key, duty);
  run.duties.push(duty);
  if (task && event.duty === "refine") {
    task.status = "refining";
    task.waits.push({ kind: "refine", began: at });
  }
};

const supervisionFailed: Fold = (run, event, moment) => {
  const duty = endDuty(run, event.duty, event, moment);
  if (duty && event.failure.kind === "approval") duty.ending = "asked";
  else if (duty) {
    duty.ending = "failed";
    duty.failure = event.failure;
    duty.findings = event.findings ?? [];
  }
  if (moment.task) {
    endWaits(moment.task, moment.at);
    moment.task.status = "judged";
  }
};

const tasksAdded: Fold = (run, event, moment) => {
  addTasks(run, event.tasks, moment.at);
  run.combine = event.combine ?? run.combine;
  run.unserved = [...new Set([...run.unserved, ...(event.unserved ?? [])])];
  run.warnings = event.warnings ?? run.warnings;
  if (event.done === false || !run.openDuties.has(dutyKey("plan"))) return;
  const duty = endDuty(run, "plan", event, moment);
  if (!duty) return;
  duty.tasks = event.tasks.map((task: PlannedTask) => task.id);
  duty.findings = event.warnings ?? [];
};

const refined: Fold = (run, event, moment) => {
  const duty = endDuty(run, "refine", event, moment);
  if (duty) duty.instruction = event.instruction;
  const task = moment.task!;
  endWaits(task, moment.at);
  task.instruction = event.instruction;
  task.refinements.push(event.instruction);
  task.status = "judged";
};

const answerWritten: Fold = (run, event, moment) => {
  endDuty(run, "answer", event, moment);
  run.answer = event.answer;
  run.sections = event.sections ?? [];
  run.statements = event.audit?.statements ?? [];
};

const promptSent: Fold = (run, event, { entry, task }) => {
  const prompt: Prompt = {
    model: event.model, messages: event.messages, tools: event.tools ?? [], firstIn: event.first_in ?? 0, seq: entry.seq,
  };
  const work = event.duty === "attempt" ? openAttempt(task) : run.openDuties.get(dutyKey(event.duty, event.task));
  work?.prompts.push(prompt);
};

const modelCalled: Fold = (run, event, { at }) => {
  const used = nothing();
  add(used, event.used);
  run.openDuties.get(dutyKey(event.duty, event.task))?.calls.push({
    model: event.model, began: Math.max(0, at - event.seconds), seconds: event.seconds, input: event.input ?? 0,
    output: event.output ?? 0, used,
  });
};

const FOLDS: Record<string, Fold> = {
  ...TASK_FOLDS,
  ...PERSON_FOLDS,
  "run.requested": requested,
  "run.resumed": resumed,
  "run.time_ran_out": timeRanOut,
  "run.work_stopped": (run, _event, { at }) => cutOff(run, at),
  "attempt.stopped": (run, event, { task }) => { if (task) attemptStopped(run, event, task); },
  "run.ended": ended,
  "run.released": (run) => { run.released = true; },
  "run.offered": (run, event) => { run.source = event.run; run.unserved.push(...(event.unserved ?? [])); },
  "run.pause_set": (run, event) => { run.paused = event.paused; },
  "run.cancel_requested": (run) => { run.cancelled = true; },
  "supervision.started": supervisionStarted,
  "supervision.failed": supervisionFailed,
  "plan.grown": tasksAdded,
  "task.refined": refined,
  "answer.written": answerWritten,
  "prompt.sent": promptSent,
  "model.called": modelCalled,
  noted: (run, event, { at }) => {
    if (event.fact?.type === "calls_lost") add(run.lost, event.fact.used);
    run.notes.push({ at, text: event.text, task: event.task ?? "", attempt: event.attempt ?? 0, fact: event.fact });
  },
};
