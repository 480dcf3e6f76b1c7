// The states of runs and tasks: a word, a look (class name) and an icon of its own shape for each.

import type { ComponentChildren, JSX } from "preact";

type Look = "wait" | "ready" | "run" | "retry" | "ask" | "done" | "part" | "fail" | "skip" | "reuse";

const STATES: Record<string, [Look, string]> = {
  waiting: ["wait", "waiting"],
  ready: ["ready", "ready"],
  running: ["run", "running"],
  judged: ["retry", "retrying"],
  refining: ["retry", "rewriting task"],
  "backing off": ["retry", "retrying"],
  expanded: ["run", "running"],
  asking: ["ask", "needs you"],
  done: ["done", "done"],
  failed: ["fail", "failed"],
  skipped: ["skip", "skipped"],
  unfinished: ["skip", "unfinished"],
  dropped: ["skip", "dropped"],
  reused: ["reuse", "reused"],
  complete: ["done", "complete"],
  partial: ["part", "partial"],
  cancelled: ["skip", "cancelled"],
  needs_input: ["ask", "needs you"],
  paused: ["ready", "paused"],
  interrupted: ["fail", "interrupted"],
  damaged: ["fail", "damaged"],
  planning: ["run", "planning"],
  succeeded: ["done", "succeeded"],
  "under way": ["run", "running"],
  stopped: ["skip", "stopped"],
  asked: ["ask", "asked a person"],
};

export const lookOf = (state: string): Look => STATES[state]?.[0] ?? "wait";
export const wordOf = (state: string): string => STATES[state]?.[1] ?? state;
export const stateOf = (task: { status: string; reused?: unknown }): string => (task.reused ? "reused" : task.status);

const line = (path: string, width = 2.2): JSX.Element => (
  <path d={path} fill="none" stroke="currentColor" stroke-width={width} stroke-linecap="round" stroke-linejoin="round" />
);
const ring = (dashes?: string): JSX.Element => (
  <circle cx="8" cy="8" r="5.5" fill="none" stroke="currentColor" stroke-width="1.6" stroke-dasharray={dashes} />
);

const SHAPES: Record<Look, JSX.Element> = {
  wait: ring("2.2 2.2"),
  ready: ring(),
  run: (
    <>
      <circle cx="8" cy="8" r="5.5" fill="none" stroke="currentColor" stroke-width="1.6" opacity=".3" />
      <path class="spin" d="M8 2.5a5.5 5.5 0 0 1 5.5 5.5" fill="none" stroke="currentColor" stroke-width="2.2" />
    </>
  ),
  retry: line("M3 8a5 5 0 0 1 8.6-3.5M13 8a5 5 0 0 1-8.6 3.5M11.8 1.8v3h-3M4.2 14.2v-3h3", 1.7),
  ask: (
    <>
      <path class="ask-sign" d="M8 1.2 14.8 8 8 14.8 1.2 8z" />
      <path class="ask-mark" d="M8 4.6v4.2M8 11v.4" />
    </>
  ),
  done: line("m3 8.6 3.2 3.2L13 4.8"),
  part: line("m2.2 8.6 3.2 3.2L9.8 6.6M12.9 3.4v4.4M12.9 11v.3"),
  fail: line("m4 4 8 8m0-8-8 8"),
  skip: line("M3 8h10"),
  reuse: line("m3 4 4 4-4 4m6-8 4 4-4 4", 2),
};

export function Icon({ state, size = 14 }: { state: string; size?: number }): JSX.Element {
  const look = lookOf(state);
  return (
    <svg class={`icon is-${look}`} width={size} height={size} viewBox="0 0 16 16" aria-hidden="true">
      {SHAPES[look]}
    </svg>
  );
}

export function Chip({ state, children }: { state: string; children?: ComponentChildren }): JSX.Element {
  return (
    <span class={`chip is-${lookOf(state)}`}>
      <Icon state={state} />
      {children ?? wordOf(state)}
    </span>
  );
}
