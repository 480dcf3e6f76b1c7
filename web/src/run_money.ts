// What a run spends: what is charged for attempts and steps, also where they are cut off.

import type { Amount, Event } from "./events.ts";
import type { Run, Task } from "./run_state.ts";

export const nothing = (): Amount => ({ tokens: 0, micros: 0, calls: 0 });

export function add(sum: Amount, more?: Partial<Amount> | null): void {
  sum.tokens += more?.tokens ?? 0;
  sum.micros += more?.micros ?? 0;
  sum.calls += more?.calls ?? 0;
}

/** An amount of an event as one of our own; undefined where the event has none. */
export const amountOf = (amount?: Partial<Amount> | null): Amount | undefined =>
  amount ? { tokens: amount.tokens ?? 0, micros: amount.micros ?? 0, calls: amount.calls ?? 0 } : undefined;

/** Book what a lost call, or several, are charged with. */
export function lose(run: Run, amount?: Partial<Amount> | null): void {
  add(run.spent, amount);
  add(run.lost, amount);
}

/** Nested runs of a crashed attempt are not resumed: what is reserved for them is charged. */
export function loseCarried(run: Run, task: Task): void {
  for (const reserved of task.carried.values()) lose(run, reserved);
  task.carried.clear();
}

/** Whether a step does all of its attempt in a run of its own. */
export const startsRun = (step: { kind?: string }): boolean => step.kind === "subteam" || step.kind === "worker";
const stoppedKey = (task: string, attempt: number): string => `${task} ${attempt}`;

/** An attempt is stopped: what is reserved for its nested runs stays so until they have ended. */
export function awaitNestedEnd(run: Run, task: Task): void {
  const steps = [...task.openSteps.values()].filter(startsRun);
  const attempt = task.attempts.at(-1);
  if (!steps.length || !attempt) return;
  const held = nothing();
  for (const step of steps.filter((each) => each.resumable)) {
    add(held, step.reserved);
    step.reserved = nothing();
    step.expected = nothing();
  }
  run.stopping.set(stoppedKey(task.id, attempt.attempt), held);
}

/** The nested run of a stopped attempt has ended. */
export function attemptStopped(run: Run, event: Event, task: Task): void {
  const key = stoppedKey(event.task, event.attempt);
  const held = run.stopping.get(key);
  run.stopping.delete(key);
  if (event.used) {
    add(run.spent, event.used);
    add(run.lost, event.lost);
  } else lose(run, held);
  add(task.used, event.used ?? held);
}

/** Nobody waits any more for nested runs whose attempt was stopped. */
export function loseStopped(run: Run): void {
  for (const held of run.stopping.values()) lose(run, held);
  run.stopping.clear();
}

/** Charge what an attempt has used that was not told step by step, and return it. */
export function closeAttempt(
  run: Run, task: Task, { used, isCutOff, carries }: { used?: Amount | null; isCutOff?: boolean; carries?: boolean },
): Amount {
  const spent = { ...run.spent };
  for (const [number, step] of task.openSteps) {
    if (carries && step.resumable) task.carried.set(number, step.reserved);
    else lose(run, step.expected);
  }
  if (!carries) loseCarried(run, task);
  if (isCutOff) lose(run, task.expected ?? task.reserved);
  else add(run.spent, used ?? task.reserved);
  task.openSteps.clear();
  task.reserved = nothing();
  task.expected = undefined;
  const { tokens, micros, calls } = run.spent;
  return { tokens: tokens - spent.tokens, micros: micros - spent.micros, calls: calls - spent.calls };
}
