// What events change in a run: tasks that join, settle and go; attempts and duties that end; what they cost.

import type { Edge, Event, Plan, PlannedTask } from "./events.ts";
import { add, closeAttempt, lose, nothing } from "./run_money.ts";
import { type Attempt, type Duty, type Run, SETTLED, type Task, type WantedCall, type WorkEnding } from "./run_state.ts";

export function beginRun(run: string): Run {
  return {
    run, team: "", goal: "", start: 0, at: 0, seq: 0, deadline: 0, agents: new Map(), budget: {}, tasks: new Map(),
    dropped: [], duties: [], questions: [], notes: [], warnings: [], combine: "merge", sections: [], statements: [],
    paused: false, cancelled: false, released: false, spent: nothing(), lost: nothing(), stopping: new Map(), source: "", parent: "", unserved: [],
    interruptions: [], labels: {}, round: 0, planRedo: false, openDuties: new Map(), readers: new Map(),
  };
}

// --- the plan

const needsOf = (task: PlannedTask): Task["needs"] => {
  const edges: Edge[] = (task.after ?? []).map((edge) => (typeof edge === "string" ? { task: edge } : edge));
  const repeated: Edge[] = task.for_each ? [{ task: task.for_each }] : [];
  return [...repeated, ...edges].map((edge) => ({ task: edge.task, need: edge.need ?? "required" }));
};

/** The first words of an instruction, for a task that has no title. */
export function shortTitle(instruction: string): string {
  const words = [...instruction.replace(/\s+/g, " ").trim()];
  if (words.length <= 48) return words.join("");
  const cut = words.slice(0, 48).join("");
  const whole = cut.slice(0, Math.max(0, cut.lastIndexOf(" ")));
  return `${(whole || words.slice(0, 47).join("")).replace(/[ ,;:.]+$/, "")}…`;
}

function newTask(run: Run, task: PlannedTask): Task {
  return {
    id: task.id, title: task.title || shortTitle(task.instruction), givenTitle: task.title ?? "", instruction: task.instruction,
    planned: task.instruction, worker: task.worker ?? "", needs: needsOf(task), quorum: task.quorum ?? 0,
    forEach: task.for_each ?? "", accept: task.accept ?? [], status: "waiting", order: run.tasks.size,
    round: run.round, attempts: [], refinements: [], retries: [], waits: [], used: nothing(), reserved: nothing(),
    openSteps: new Map(), carried: new Map(), doubts: new Map(), looks: 0, wantedCalls: [],
  };
}

/** One item of a task that is repeated over a list. */
export function newItem(run: Run, task: Task, index: number): Task {
  const item = newTask(run, { id: `${task.id}[${index}]`, instruction: task.planned, title: task.givenTitle });
  const { worker, needs, quorum, forEach, accept, round } = task;
  return { ...item, worker, needs, quorum, forEach, accept, round, parent: task.id };
}

export function addTasks(run: Run, tasks: PlannedTask[], at: number): void {
  for (const task of tasks) {
    const added = newTask(run, task);
    run.tasks.set(task.id, added);
    for (const { task: needed } of added.needs) {
      const readers = run.readers.get(needed);
      if (readers) readers.add(task.id);
      else run.readers.set(needed, new Set([task.id]));
    }
  }
  for (const task of tasks) makeReady(run, run.tasks.get(task.id)!, at);
}

/** A task whose inputs are there may begin; one that is repeated over a list is expanded. */
function makeReady(run: Run, task: Task, at: number): void {
  if (task.status !== "waiting" || task.parent !== undefined) return;
  let delivered = 0;
  for (const { task: name, need } of task.needs) {
    const needed = run.tasks.get(name);
    const status = needed?.status ?? "waiting";
    // who skips a task wants the others to go on without it
    const isLeftOut = needed?.skipped === "person" && task.forEach !== name;
    if (need === "required" && status !== "done" && !isLeftOut) return;
    if (need === "optional" && !SETTLED.has(status)) return;
    if (need === "quorum" && status === "done") delivered += 1;
  }
  if (task.needs.some((edge) => edge.need === "quorum") && delivered < task.quorum) return;
  task.status = task.forEach ? "expanded" : "ready";
  task.ready = at;
}

export function settle(run: Run, task: Task, status: "done" | "failed" | "skipped", at: number): void {
  task.status = status;
  for (const name of run.readers.get(task.id) ?? []) {
    const reader = run.tasks.get(name);
    if (reader?.status === "waiting") makeReady(run, reader, at);
  }
}

export function dropRound(run: Run): void {
  for (const task of [...run.tasks.values()].filter((each) => each.round === run.round)) {
    run.tasks.delete(task.id);
    task.status = "dropped";
    run.dropped.push(task);
  }
}

export function takePlan(run: Run, plan: Plan, at: number): void {
  run.combine = plan.combine ?? "merge";
  addTasks(run, plan.tasks, at);
}

// --- what is under way

export const openAttempt = (task?: Task): Attempt | undefined => {
  const last = task?.attempts.at(-1);
  return last?.ending === "under way" ? last : undefined;
};

const MOST_LOOKS = 5;

/** Whether a tool may still tell of an effect in doubt whether it happened. */
export const canLookUp = (task: Task): boolean => task.looks < MOST_LOOKS && [...task.doubts.values()].some((look) => look);

export const endWaits = (task: Task, at: number): void => {
  for (const wait of task.waits) wait.ended ??= at;
};

export function endAttempt(run: Run, task: Task, event: Event, at: number, ending: WorkEnding): Attempt | undefined {
  const isCutOff = event.type === "attempt.failed" && !event.used;
  const used = closeAttempt(run, task, { used: event.used, isCutOff });
  add(task.used, used);
  const attempt = openAttempt(task);
  if (attempt) {
    attempt.ended = at;
    attempt.ending = ending;
    add(attempt.used, used);
  }
  return attempt;
}

export const dutyKey = (duty: string, task = ""): string => `${duty} ${task}`;

export function endDuty(run: Run, kind: Duty["duty"], event: Event, moment: { at: number; task?: Task }): Duty | undefined {
  const key = dutyKey(kind, event.task);
  const duty = run.openDuties.get(key);
  const isCutOff = event.type === "supervision.failed" && !event.used && !event.findings?.length;
  const used = event.used ?? (isCutOff ? duty?.expected : undefined) ?? duty?.reserved;
  if (isCutOff) lose(run, used);
  else add(run.spent, used);
  if (moment.task) add(moment.task.used, used);
  if (!duty) return undefined;
  run.openDuties.delete(key);
  duty.ended = moment.at;
  duty.ending = "succeeded";
  add(duty.used, used);
  return duty;
}

export const isWorkUnderWay = (run: Run): boolean =>
  run.openDuties.size > 0 || [...run.tasks.values()].some((task) => openAttempt(task));

/** The process ended, or the time, or the run: nothing is under way any more. */
export function stopAll(run: Run, at: number, stopTask: (task: Task) => void): void {
  for (const task of run.tasks.values()) {
    const attempt = openAttempt(task);
    if (attempt) {
      attempt.ended = at;
      attempt.ending = "stopped";
    }
    if (task.status === "running" || task.status === "refining") stopTask(task);
  }
  for (const duty of run.openDuties.values()) {
    duty.ended = at;
    duty.ending = "stopped";
    lose(run, duty.expected ?? duty.reserved);
    if (duty.duty === "plan") run.planRedo = true;
  }
  run.openDuties.clear();
}

export const IN_DOUBT = { kind: "uncertain", message: "an effect was begun and it is not known whether it happened" };

/** The calls of tools that a model asks for in its reply. */
export function callsIn(result: unknown): WantedCall[] {
  const calls = (result as { calls?: { id?: string; name: string; arguments?: string }[] } | null)?.calls;
  if (!Array.isArray(calls) || !calls.every((call) => typeof call?.name === "string")) return [];
  return calls.map((call) => ({ id: call.id ?? "", name: call.name, arguments: decoded(call.arguments ?? "{}") }));
}

function decoded(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
