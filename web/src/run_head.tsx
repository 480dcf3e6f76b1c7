// The head of the run page: the request, where it stands, and what can be done about it.

import type { JSX } from "preact";
import { serverNow } from "./api.ts";
import { CapLine } from "./cap_line.tsx";
import { ago, count, dollars, plural, seconds, shortRun } from "./format.ts";
import { Labels } from "./labels.tsx";
import { runAddress } from "./route.ts";
import { RunActions } from "./run_actions.tsx";
import type { RunContext } from "./run_context.ts";
import { type Run, type Task, isLost, openQuestion, planned } from "./run_state.ts";
import { runState } from "./run_store.ts";
import { foresee } from "./run_view.ts";
import { Link } from "./shell.tsx";
import { Chip } from "./states.tsx";

export function RunHead({ context }: { context: RunContext }): JSX.Element {
  const { store } = context;
  const run = store.shown.value;
  const state = runState(store, run);
  if (!run.start) return <header class="rh is-late"><h1>…</h1></header>;
  return (
    <header class="rh">
      <div class="rh-top">
        <h1 title={run.goal}>{run.goal || "…"}</h1>
        <RunActions context={context} state={runState(store, store.latest)} />
      </div>
      <div class="facts">
        <Chip state={state} />
        {store.example && <b>example</b>}
        {state === "interrupted" && <b class="is-bad">Nobody carries this run, since {ago(run.start + run.at, serverNow())}</b>}
        <Moment context={context} />
        <Elapsed context={context} run={run} />
        <Progress tasks={planned(run)} />
        <Budget run={run} />
        {run.source && <span class="quiet">after <Link class="text-link" to={runAddress(run.source)}>{shortRun(run.source)}</Link></span>}
        <Labels labels={run.labels} />
        {run.parent && <span class="quiet">inside <Link class="text-link" to={runAddress(run.parent)}>{shortRun(run.parent)}</Link></span>}
      </div>
      <CapLine run={run} />
    </header>
  );
}

function Moment({ context }: { context: RunContext }): JSX.Element | null {
  const { moment } = context.store;
  if (moment.value === undefined) return null;
  return (
    <span class="rh-past">
      as it was at {seconds(moment.value)} <button onClick={() => { moment.value = undefined; }}>back to now</button>
    </span>
  );
}

function Elapsed({ context, run }: { context: RunContext; run: Run }): JSX.Element {
  const now = context.store.now;
  const isLive = !run.ended && !context.store.isInterrupted.value && context.store.moment.value === undefined && !openQuestion(run) && run.tasks.size > 0;
  const left = isLive ? Math.max(0, foresee(run, now, context.store.usualSeconds).end - now) : 0;
  return <span><b>{seconds(now)}</b>{left > 0.5 && <span class="quiet"> about {seconds(left)} left</span>}</span>;
}

const MOST_SEGMENTS = 40;

function segmentOf(task: Task): string {
  if (task.reused) return "reuse";
  if (task.status === "done") return "done";
  if (isLost(task)) return "fail";
  if (task.status === "asking") return "ask";
  return task.status === "waiting" || task.status === "ready" ? "wait" : "run";
}

function Progress({ tasks }: { tasks: Task[] }): JSX.Element | null {
  if (!tasks.length) return null;
  const done = tasks.filter((task) => task.status === "done").length;
  const lost = tasks.filter((task) => segmentOf(task) === "fail").length;
  const kinds = tasks.map(segmentOf);
  const step = tasks.length / MOST_SEGMENTS;
  const sorted = step > 1 ? [...kinds].sort() : kinds;
  const shown = step > 1 ? Array.from({ length: MOST_SEGMENTS }, (_, index) => sorted[Math.floor(index * step)]!) : kinds;
  return (
    <span class="rh-progress" role="img" aria-label={`${done} of ${tasks.length} tasks done, ${lost} failed or skipped`}>
      <span class="segments">{shown.map((kind) => <i class={`is-${kind}`} />)}</span>
      <span><b>{done}</b> of {tasks.length} done{lost > 0 && <>, <b class="is-bad">{lost} not</b></>}</span>
    </span>
  );
}

const NEAR = 0.8;

/** What was spent, with a bar for a cap in dollars, and the other caps in words. */
function Budget({ run }: { run: Run }): JSX.Element {
  const { usd: cap, tokens, calls } = run.budget;
  return (
    <>
      {cap === undefined || cap === null
        ? <b>{dollars(run.spent.micros)}</b>
        : <Dollars spent={run.spent.micros} cap={cap * 1e6} />}
      <span class="quiet">
        <Used spent={run.spent.tokens} cap={tokens} text={count} /> tokens, <Used spent={run.spent.calls} cap={calls} text={String} /> {plural(run.spent.calls, "call", "").trim()}
      </span>
    </>
  );
}

function Dollars({ spent, cap }: { spent: number; cap: number }): JSX.Element {
  const share = Math.min(1, spent / Math.max(cap, 1));
  return (
    <span class={`rh-budget ${share > NEAR ? "is-near" : ""}`} title={share > NEAR ? "The budget is almost used up" : "Spent of the budget"}>
      <i><em style={{ width: `${share * 100}%` }} /></i>
      <span><b>{dollars(spent)}</b> of {dollars(cap)}</span>
    </span>
  );
}

function Used({ spent, cap, text }: { spent: number; cap?: number | null; text: (value: number) => string }): JSX.Element {
  if (cap === undefined || cap === null) return <>{text(spent)}</>;
  return <span class={spent > cap * NEAR ? "is-near-cap" : ""}>{text(spent)} of {text(cap)}</span>;
}
