// The inspector of a task: what it came to, its attempts, its calls, what its model was told, its events.

import type { JSX } from "preact";
import { Ref } from "./chips.tsx";
import { CopyButton } from "./copy_button.tsx";
import { count, dollars, seconds } from "./format.ts";
import { query, setQuery } from "./route.ts";
import type { RunContext } from "./run_context.ts";
import { type Run, type Task, attemptCount, planned } from "./run_state.ts";
import { Chip, stateOf } from "./states.tsx";
import { TaskActions } from "./task_actions.tsx";
import { AttemptsTab, CallsTab, EventsTab, PromptTab, ResultTab, callsOf } from "./task_tabs.tsx";

export const TABS = ["result", "attempts", "calls", "prompt", "events"] as const;
type Tab = (typeof TABS)[number];

export function neighbourTask(run: Run, id: string, by: 1 | -1): string {
  const ids = planned(run).map((task) => task.id);
  const at = ids.indexOf(id);
  return ids[(at < 0 && by < 0 ? ids.length - 1 : at + by + ids.length) % ids.length] ?? "";
}

export function TaskPanel({ context, task }: { context: RunContext; task: Task }): JSX.Element {
  const run = context.store.shown.value;
  const now = context.store.now;
  const tab = (query.value.get("tab") || "result") as Tab;
  const attempts = attemptCount(task);
  const calls = callsOf(task).length;
  const words: Record<Tab, string> = {
    result: "Result",
    attempts: `Attempts ${attempts || ""}`,
    calls: `Calls ${calls || ""}`,
    prompt: "Prompt",
    events: "Events",
  };
  const move = (by: 1 | -1): void => setQuery({ task: neighbourTask(run, task.id, by) });
  return (
    <div class="pn pn-task">
      <header>
        <div class="pn-crumb">
          <button class="ghost" title="Back to the run (Esc)" onClick={() => context.select("")}>← Run</button>
          <span class="grow" />
          <CopyButton text={location.href} label="Copy link" />
          <CopyButton text={JSON.stringify(plainTask(task), null, 2)} label="Copy JSON" />
          <button class="ghost" title="Next task (j)" aria-label="Next task" onClick={() => move(1)}>↓</button>
          <button class="ghost" title="Previous task (k)" aria-label="Previous task" onClick={() => move(-1)}>↑</button>
        </div>
        <h2><span class="mono">{task.id}</span> {task.title}</h2>
        <div class="facts">
          <Chip state={stateOf(task)} />
          <span>{task.worker || "any worker"}</span>
          {task.began !== undefined && <span>{seconds((task.ended ?? now) - task.began)}</span>}
          <span>{dollars(task.used.micros)}</span>
          <span>{count(task.used.tokens)} tokens</span>
        </div>
        <Relations context={context} run={run} task={task} />
        <TaskActions context={context} task={task} />
      </header>
      <div class="tabs" role="tablist" aria-label="Parts of the task">
        {TABS.map((each) => (
          <button role="tab" aria-selected={tab === each} class={tab === each ? "is-on" : ""} onClick={() => setQuery({ tab: each })}>
            {words[each]}
          </button>
        ))}
      </div>
      {tab === "result" && <ResultTab context={context} task={task} />}
      {tab === "attempts" && <AttemptsTab context={context} task={task} />}
      {tab === "calls" && <CallsTab context={context} task={task} />}
      {tab === "prompt" && <PromptTab context={context} task={task} />}
      {tab === "events" && <EventsTab context={context} task={task} />}
    </div>
  );
}

/** A task without what only the fold needs. */
function plainTask(task: Task): unknown {
  const { openSteps: _open, wantedCalls: _wanted, reserved: _reserved, ...rest } = task;
  return rest;
}

function Relations({ context, run, task }: { context: RunContext; run: Run; task: Task }): JSX.Element | null {
  const readers = planned(run).filter((other) => other.needs.some((need) => need.task === task.id));
  const route = run.notes.find((note) => note.task === task.id && note.fact?.type === "route_chosen")?.fact;
  if (!task.needs.length && !readers.length && !route) return null;
  const marks = { required: "", optional: "?", quorum: "*" };
  return (
    <p class="pn-relations">
      {task.needs.length > 0 && <>needs {task.needs.map((need) => <Ref context={context} id={need.task} mark={marks[need.need]} />)} </>}
      {readers.length > 0 && <>feeds {readers.map((reader) => <Ref context={context} id={reader.id} />)}</>}
      {route?.scores && <span> · chosen by route: {route.scores.map(([name, score]) => `${name} ${score.toFixed(2)}`).join(", ")}</span>}
    </p>
  );
}
