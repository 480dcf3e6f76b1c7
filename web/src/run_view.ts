// What the page works out from a run: the critical path, where time and money went, what is foreseen, what is missing.

import type { Gap } from "./events.ts";
import { type Interruption, type Run, SETTLED, type Task, planned } from "./run_state.ts";

/** When a task ended; one under way ends after all of them. Undefined: it has not begun, or never ran. */
function endOf(task: Task): number | undefined {
  if (task.status === "skipped") return undefined;
  if (task.ended !== undefined) return task.ended;
  return task.began === undefined && task.status !== "expanded" ? undefined : Infinity;
}

/** The chain that decides how long the run takes: from the task that ends last back along the inputs that came last. */
export function criticalPath(run: Run): string[] {
  const tasks = new Map(planned(run).map((task) => [task.id, task]));
  const latest = (names: Iterable<string>): Task | undefined => {
    let last: Task | undefined;
    for (const name of names) {
      const task = tasks.get(name);
      const end = task && endOf(task);
      if (!task || end === undefined) continue;
      const before = last && endOf(last)!;
      if (before === undefined || end > before || (end === before && task.order > last!.order)) last = task;
    }
    return last;
  };
  const path: string[] = [];
  let here = latest(tasks.keys());
  while (here && !path.includes(here.id)) {
    path.push(here.id);
    here = latest(here.needs.map((need) => need.task));
  }
  return path.reverse();
}

/** What the journal can tell of a time without entries: a lost process may have ended at any moment of it. */
export const INTERRUPTED = { lost: "interrupted", released: "the server was stopped" };

/** When no process drove the run; a run that only waits for a person needs none. */
export function interruptionsOf(run: Run): (Interruption & { cause: "lost" | "released" })[] {
  return run.interruptions.flatMap(({ cause, ...times }) => (cause === "asked" ? [] : [{ ...times, cause }]));
}

export type SliceKind = "work" | "plan" | "failed" | "refine" | "backoff" | "person" | "queue" | "answer" | "down";
export type Slice = { kind: SliceKind; label: string; began: number; ended: number; task: string };

/** Each second of the run with the one thing that it was waiting for, along the critical path. */
export function timeLedger(run: Run, now: number): Slice[] {
  const parts: Slice[] = [];
  const put = (kind: SliceKind, label: string, began: number, ended: number | undefined, task = ""): void => {
    parts.push({ kind, label, began, ended: ended ?? now, task });
  };
  for (const { last, resumed, cause } of interruptionsOf(run)) put("down", INTERRUPTED[cause], last, resumed);
  for (const duty of run.duties) {
    if (duty.duty === "plan") put("plan", "planning", duty.began, duty.ended);
    if (duty.duty === "answer") {
      put(duty.ending === "failed" ? "failed" : "answer", "writing the answer", duty.began, duty.ended);
    }
  }
  for (const question of run.questions) {
    if (!question.task) put("person", "waiting for a person", question.asked, question.answered);
  }
  for (const id of criticalPath(run)) {
    const task = run.tasks.get(id)!;
    const first = task.attempts[0]?.began ?? 0;
    if (task.ready !== undefined && task.ready < first) put("queue", `${id} waiting for a worker`, task.ready, first, id);
    for (const attempt of task.attempts) {
      const failed = attempt.ending === "failed";
      const label = `${id} ${attempt.worker}${failed ? ", failed" : ""}`;
      put(failed ? "failed" : "work", label, attempt.began, attempt.ended, id);
    }
    const words = { person: "waiting for a person", refine: "rewriting the task", backoff: "waiting to retry" };
    for (const wait of task.waits) put(wait.kind, `${id} ${words[wait.kind]}`, wait.began, wait.ended, id);
  }
  return withoutOverlap(parts);
}

function withoutOverlap(parts: Slice[]): Slice[] {
  const slices: Slice[] = [];
  let cursor = 0;
  for (const part of parts.sort((a, b) => a.began - b.began || b.ended - a.ended)) {
    const began = Math.max(part.began, cursor);
    if (part.ended - began <= 0.02) continue;
    slices.push({ ...part, began });
    cursor = part.ended;
  }
  return slices;
}

/** What each worker cost, the dearest first; the supervisor is one of them. In micros. */
export function moneyLedger(run: Run): { rows: [string, number][]; failed: number } {
  const sums = new Map<string, number>();
  const count = (name: string, micros: number): void => {
    sums.set(name, (sums.get(name) ?? 0) + micros);
  };
  let failed = 0;
  for (const task of [...run.tasks.values(), ...run.dropped]) {
    for (const attempt of task.attempts) {
      count(attempt.worker, attempt.used.micros);
      if (attempt.ending === "failed") failed += attempt.used.micros;
    }
  }
  for (const duty of run.duties) count("supervisor", duty.used.micros);
  const rows = [...sums].filter(([, micros]) => micros > 0).sort((a, b) => b[1] - a[1]);
  return { rows, failed };
}

const median = (numbers: number[]): number | undefined => numbers.sort((a, b) => a - b)[numbers.length >> 1];

const USUAL = 10;

/** What a worker's attempts took in this run, else what the roster says, else `other`. */
export function usualSeconds(run: Run, other = USUAL): (worker: string) => number {
  const taken = new Map<string, number[]>();
  for (const task of run.tasks.values()) {
    for (const attempt of task.attempts) {
      if (attempt.ending !== "succeeded" || attempt.ended === undefined) continue;
      taken.set(attempt.worker, [...(taken.get(attempt.worker) ?? []), attempt.ended - attempt.began]);
    }
  }
  const all = median([...taken.values()].flat());
  return (worker) => median(taken.get(worker) ?? []) ?? run.agents.get(worker)?.seconds ?? all ?? other;
}

export type Foreseen = { at: Map<string, [number, number]>; end: number };
/** The rows of the supervisor in the time chart. */
export const PLAN = "(plan)";
export const ANSWER = "(answer)";

/** When what has not ended may begin and end: after its inputs, for as long as its worker usually takes, else `other`. */
export function foresee(run: Run, now: number, other?: number): Foreseen {
  const at = new Map<string, [number, number]>();
  if (run.ended) return { at, end: now };
  const usual = usualSeconds(run, other);
  const visiting = new Set<string>();
  const endOfTask = (id: string): number => {
    const task = run.tasks.get(id);
    if (!task || SETTLED.has(task.status)) return task?.ended ?? now;
    const known = at.get(id);
    if (known || visiting.has(id)) return known?.[1] ?? now;
    visiting.add(id);
    const attempt = task.attempts.at(-1);
    const isOpen = attempt?.ending === "under way";
    const began = isOpen ? attempt.began : Math.max(now, ...task.needs.map((need) => endOfTask(need.task)));
    const end = Math.max(began + usual(task.worker), now);
    at.set(id, [began, end]);
    return end;
  };
  let end = Math.max(now, ...[...run.tasks.keys()].map(endOfTask));
  if (run.tasks.size && run.answer === undefined && run.combine !== "none") {
    at.set(ANSWER, [end, end + usual("supervisor")]);
    end += usual("supervisor");
  }
  return { at, end };
}

/** A cause and all that had to be left out because of it. */
export type RootedGap = { gap: Gap; lost: string[] };

export function openGaps(run: Run): Gap[] {
  if (run.ended) return run.ended.gaps;
  const gaps: Gap[] = [];
  for (const task of planned(run)) {
    if (task.status === "failed") {
      gaps.push({ task: task.id, status: "failed", reason: task.failure?.kind ?? "", message: task.failure?.message ?? "" });
    }
    if (task.status === "skipped") {
      gaps.push({ task: task.id, status: "skipped", reason: task.skipped ?? "", message: "", because: task.because });
    }
  }
  const unserved = run.unserved.map((message) => ({ task: "", status: "unserved", reason: "unserved", message }));
  return [...gaps, ...unserved];
}

/** What is missing by its root cause, the one with the most consequences first. */
export function rootGaps(gaps: Gap[]): RootedGap[] {
  const byTask = new Map(gaps.filter((gap) => gap.task && !gap.run).map((gap) => [gap.task, gap]));
  const rootOf = (gap: Gap, depth = 0): Gap => {
    const cause = gap.status === "skipped" && gap.because ? byTask.get(gap.because) : undefined;
    return cause && cause !== gap && depth < 1000 ? rootOf(cause, depth + 1) : gap;
  };
  const lost = new Map<Gap, string[]>();
  for (const gap of gaps) {
    const root = rootOf(gap);
    lost.set(root, [...(lost.get(root) ?? []), ...(root === gap ? [] : [gap.task])]);
  }
  return [...lost].map(([gap, names]) => ({ gap, lost: names })).sort((a, b) => b.lost.length - a.lost.length);
}

/** A task, all that it needs and all that needs it, directly or not. */
export function coneOf(run: Run, id: string): Set<string> {
  const cone = new Set<string>();
  const walk = (start: string, next: (name: string) => string[]): void => {
    const visited = new Set<string>();
    const pending = [start];
    for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
      if (visited.has(name)) continue;
      visited.add(name);
      pending.push(...next(name));
    }
    for (const name of visited) cone.add(name);
  };
  walk(id, (name) => run.tasks.get(name)?.needs.map((need) => need.task) ?? []);
  walk(id, (name) => [...(run.readers.get(name) ?? [])]);
  return cone;
}
