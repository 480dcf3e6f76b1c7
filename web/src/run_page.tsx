// One run on one screen: head, what needs you, graph, time, inspector.

import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { shortRun } from "./format.ts";
import { Graph } from "./graph.tsx";
import { DutyPanel } from "./duty_panel.tsx";
import { NeedsYou } from "./needs_you.tsx";
import { PlanEditor } from "./plan_edit.tsx";
import { PlanPanel } from "./plan_panel.tsx";
import { query, setQuery } from "./route.ts";
import { type RunContext, runContext } from "./run_context.ts";
import { RunHead } from "./run_head.tsx";
import { useRunKeys } from "./run_keys.ts";
import { RunPanel } from "./run_panel.tsx";
import { attemptCount, openQuestion, planned } from "./run_state.ts";
import { RunStore } from "./run_store.ts";
import { ANSWER, PLAN } from "./run_view.ts";
import { Bar, Empty, Link } from "./shell.tsx";
import { Icon, stateOf, wordOf } from "./states.tsx";
import { TaskPanel } from "./task_panel.tsx";
import { FILTERS, type RowFilter, TimeChart } from "./time_chart.tsx";

const MANY_ROWS = 30;

export function RunPage({ name }: { name: string }): JSX.Element {
  const store = useMemo(() => new RunStore(name), [name]);
  useEffect(() => store.open(), [store]);
  useEffect(() => {
    const at = Number(query.value.get("at") ?? NaN);
    if (!Number.isNaN(at)) store.moment.value = at;
    return store.moment.subscribe((moment) => {
      if (moment === undefined && !query.value.has("at")) return;
      setQuery({ at: moment === undefined ? "" : moment.toFixed(3) });
    });
  }, [store]);
  const context = runContext(store);
  const run = store.latest;
  useRunKeys(context);
  useEffect(() => { document.title = run.goal ? `${run.goal.slice(0, 60)} · chargehand` : "chargehand"; }, [run.goal]);
  if (store.problem.value && !run.start) {
    return (
      <>
        <Bar />
        <main class="page" id="main">
          <Empty state="failed" title="This run is not here"><p>{store.problem.value.message}</p><Link class="text-link" to="/">All runs</Link></Empty>
        </main>
      </>
    );
  }
  return (
    <>
      <Bar>
        <span class="bar-path"><span>/</span> <Link to={`/?team=${encodeURIComponent(run.team)}`}>{run.team || "agent"}</Link> <span>/</span> <span class="mono">{shortRun(name)}</span></span>
      </Bar>
      <RunFrame context={context} />
    </>
  );
}

/** Of these a narrow screen shows one at a time. */
const PARTS = ["answer", "tasks", "graph", "time"] as const;
type Part = (typeof PARTS)[number];

function RunFrame({ context }: { context: RunContext }): JSX.Element {
  const { store } = context;
  const run = store.shown.value;
  const hasTask = run.tasks.has(context.selected) || context.selected === PLAN || context.selected === ANSWER;
  const [isEditing, setEditing] = useState(false);
  const [chosen, setPart] = useState<Part | undefined>(undefined);
  const part = chosen ?? (store.latest.ended ? "answer" : "tasks");
  const question = openQuestion(store.latest);
  const isPlan = question?.what === "plan" && store.moment.value === undefined;
  useEffect(() => { if (!isPlan) setEditing(false); }, [isPlan]);
  return (
    <main class={`rp is-${part}`} id="main" data-seq={store.latest.seq}>
      <RunHead context={context} />
      <div class="rp-needs"><NeedsYou run={store.latest} edit={() => setEditing(true)} /></div>
      <div class="rp-parts" role="group" aria-label="Parts of the run">
        {PARTS.map((each) => (
          <button aria-pressed={part === each} onClick={() => { setPart(each); context.select(""); }}>{each[0]!.toUpperCase() + each.slice(1)}</button>
        ))}
      </div>
      <Work context={context} />
      <TaskList context={context} />
      <aside class={`rp-side ${hasTask ? "has-task" : ""}`} aria-label="Inspector" tabIndex={-1}>
        <Inspector context={context} isPlan={isPlan} />
      </aside>
      {isEditing && question && <PlanEditor run={store.latest} number={question.number} close={() => setEditing(false)} />}
    </main>
  );
}

/** The selected task, or what the supervisor did, or the run. */
function Inspector({ context, isPlan }: { context: RunContext; isPlan: boolean }): JSX.Element {
  const task = context.store.shown.value.tasks.get(context.selected);
  if (task) return <TaskPanel context={context} task={task} />;
  if (context.selected === PLAN) return <DutyPanel context={context} kind="plan" />;
  if (context.selected === ANSWER) return <DutyPanel context={context} kind="answer" />;
  return isPlan ? <PlanPanel context={context} /> : <RunPanel context={context} />;
}

const LEGEND: [string, string][] = [
  ["work", "work"], ["tool", "tools"], ["failed", "failed"], ["refine", "rewriting"], ["person", "a person"], ["path", "critical path"],
];

function Work({ context }: { context: RunContext }): JSX.Element {
  const [share, setShare] = useState(44);
  const [filter, setFilter] = useState<RowFilter>("all");
  const many = planned(context.store.shown.value).length > MANY_ROWS;
  const drag = (event: PointerEvent): void => {
    if ((event.target as Element).closest("select")) return;
    const box = (event.currentTarget as HTMLElement).parentElement!.getBoundingClientRect();
    const move = (moved: PointerEvent): void => setShare(Math.min(80, Math.max(15, ((box.bottom - moved.clientY) / box.height) * 100)));
    addEventListener("pointermove", move);
    addEventListener("pointerup", () => removeEventListener("pointermove", move), { once: true });
  };
  const press = (event: KeyboardEvent): void => {
    if (event.key === "ArrowUp") setShare(Math.min(80, share + 5));
    if (event.key === "ArrowDown") setShare(Math.max(15, share - 5));
  };
  return (
    <div class="rp-work" style={{ "--time-share": `${share}%` }}>
      <Graph context={context} />
      <div class="rp-split" onPointerDown={drag}>
        <div class="rp-handle" role="separator" aria-label="Height of the time chart" aria-orientation="horizontal" tabIndex={0}
          aria-valuenow={Math.round(share)} aria-valuemin={15} aria-valuemax={80} onKeyDown={press} />
        <b>Time</b>
        {many && (
          <select aria-label="Rows" value={filter} onChange={(event) => setFilter(event.currentTarget.value as RowFilter)}>
            {FILTERS.map((each) => <option>{each}</option>)}
          </select>
        )}
        <span class="grow" />
        <span class="rp-legend">{LEGEND.map(([kind, word]) => <span><i class={`is-${kind}`} />{word}</span>)}</span>
      </div>
      <TimeChart context={context} filter={filter} />
    </div>
  );
}

/** The tasks as a list, for screens that are too narrow for a graph. */
function TaskList({ context }: { context: RunContext }): JSX.Element {
  return (
    <ul class="rp-tasks">
      {planned(context.store.shown.value).map((task) => {
        const attempts = attemptCount(task);
        const facts = [task.worker || "any worker", wordOf(stateOf(task)), attempts > 1 ? `${attempts} attempts` : ""];
        return (
          <li>
            <button class="ghost" onClick={() => context.select(task.id)}>
              <Icon state={stateOf(task)} size={16} />
              <span><b class="mono">{task.id}</b> {task.title}<span class="quiet">{facts.filter(Boolean).join(" · ")}</span></span>
            </button>
          </li>
        );
      })}
    </ul>
  );
}
