// Seconds to pixels on an axis that is torn where nobody worked for long.

import type { Run } from "./run_state.ts";
import { INTERRUPTED, interruptionsOf } from "./run_view.ts";

export const TORN_WIDTH = 52;
const LEAST_TORN = 2;
const LEAST_SHARE = 0.2;

/** A stretch in which nobody worked, and why. */
export type Tear = { from: number; to: number; reason: string };
export type TimeScale = {
  x: (seconds: number) => number;
  seconds: (x: number) => number;
  tears: Tear[];
  ticks: number[];
};

/** `end` is now, or the end of the run; `far` is what is foreseen; `width` is how wide all of it may be. */
export function timeScale(run: Run, end: number, far: number, width: number): TimeScale {
  const tears = tearsOf(run, end);
  const torn = tears.reduce((sum, tear) => sum + tear.to - tear.from, 0);
  const perSecond = Math.max(0, width - tears.length * TORN_WIDTH) / Math.max(far - torn, 0.001);
  const x = (value: number): number => {
    let at = 0;
    let last = 0;
    for (const tear of tears) {
      if (value <= tear.from) break;
      at += (tear.from - last) * perSecond;
      if (value < tear.to) return at + ((value - tear.from) / (tear.to - tear.from)) * TORN_WIDTH;
      at += TORN_WIDTH;
      last = tear.to;
    }
    return at + (value - last) * perSecond;
  };
  const seconds = (place: number): number => {
    let at = 0;
    let last = 0;
    for (const tear of tears) {
      const before = (tear.from - last) * perSecond;
      if (place <= at + before) break;
      at += before;
      if (place < at + TORN_WIDTH) return tear.from + ((place - at) / TORN_WIDTH) * (tear.to - tear.from);
      at += TORN_WIDTH;
      last = tear.to;
    }
    return last + (place - at) / perSecond;
  };
  return { x, seconds, tears, ticks: ticksOf(x, perSecond, tears, far) };
}

function tearsOf(run: Run, end: number): Tear[] {
  const spans: [number, number][] = run.duties.map((duty) => [duty.began, duty.ended ?? end]);
  for (const task of [...run.tasks.values(), ...run.dropped]) {
    for (const attempt of task.attempts) spans.push([attempt.began, attempt.ended ?? end]);
  }
  spans.sort((a, b) => a[0] - b[0]);
  const idle: [number, number][] = [];
  let until = 0;
  for (const [began, ended] of spans) {
    if (began > until) idle.push([until, began]);
    until = Math.max(until, ended);
  }
  if (end > until) idle.push([until, end]);
  const worked = end - idle.reduce((sum, [from, to]) => sum + to - from, 0);
  const least = Math.max(LEAST_TORN, worked * LEAST_SHARE);
  return idle.filter(([from, to]) => to - from > least).map(([from, to]) => ({ from, to, reason: reasonOf(run, from, to) }));
}

function reasonOf(run: Run, from: number, to: number): string {
  const covers = (began: number, ended = Infinity): boolean => began <= from + 0.5 && ended >= to - 1;
  const interruptions = interruptionsOf(run);
  const whole = interruptions.find(({ last, resumed }) => covers(last, resumed));
  if (whole) return INTERRUPTED[whole.cause];
  if (run.questions.some((question) => covers(question.asked, question.answered))) return "waiting for you";
  const part = interruptions.find(({ last, resumed }) => last < to && resumed > from);
  if (part) return INTERRUPTED[part.cause];
  if (run.questions.some((question) => question.asked < to && (question.answered ?? Infinity) > from)) return "waiting for you";
  return run.paused ? "paused" : "nothing under way";
}

const STEPS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21_600, 86_400];

function ticksOf(x: (seconds: number) => number, perSecond: number, tears: Tear[], far: number): number[] {
  const step = STEPS.find((each) => each * perSecond > 64) ?? 172_800;
  const ticks: number[] = [];
  const first = (from: number): number => Math.ceil(from / step) * step;
  let from = 0;
  for (const tear of [...tears, { from: far, to: far }]) {
    for (let tick = first(from); tick <= tear.from + 1e-9; tick += step) ticks.push(tick);
    from = tear.to;
  }
  const isFree = (tick: number): boolean => tears.every((tear) => Math.abs(x(tick) - x(tear.from)) > 22 || tick === 0);
  return ticks.filter(isFree).filter((tick, index, all) => index === 0 || x(tick) - x(all[index - 1]!) > 40);
}
