// Two runs side by side: facts, answers, plans, where time and money went.

import type { JSX } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { citeIn } from "./chips.tsx";
import { count, dollars, seconds, shortRun } from "./format.ts";
import { Bars, SLICE_WORDS } from "./ledgers.tsx";
import { runAddress } from "./route.ts";
import { runContext } from "./run_context.ts";
import { type Run, type Task, planned } from "./run_state.ts";
import { RunStore, runState } from "./run_store.ts";
import { moneyLedger, openGaps, timeLedger } from "./run_view.ts";
import { Bar, Link } from "./shell.tsx";
import { Chip } from "./states.tsx";
import { Compared } from "./text.tsx";
import { Value } from "./value_view.tsx";

function useStore(name: string): RunStore {
  const store = useMemo(() => new RunStore(name), [name]);
  useEffect(() => store.open(), [store]);
  return store;
}

export function ComparePage({ left, right }: { left: string; right: string }): JSX.Element {
  const stores = [useStore(left), useStore(right)];
  const runs = stores.map((store) => store.shown.value);
  const facts: [string, (run: Run, store: RunStore) => JSX.Element | string][] = [
    ["State", (run, store) => <Chip state={runState(store, run)} />],
    ["Time", (_run, store) => seconds(store.end)],
    ["Cost", (run) => dollars(run.spent.micros)],
    ["Tokens", (run) => count(run.spent.tokens)],
    ["Tasks done", (run) => `${planned(run).filter((task) => task.status === "done").length} of ${planned(run).length}`],
    ["Attempts", (run) => String(planned(run).reduce((sum, task) => sum + task.attempts.length, 0))],
    ["Missing", (run) => String(openGaps(run).length)],
  ];
  return (
    <>
      <Bar />
      <main class="page" id="main">
        <div class="page-tools"><h1>Compare</h1></div>
        <table class="grid compare-facts">
          <thead><tr><th scope="col"></th>{stores.map((store, index) => <th scope="col"><Link class="text-link" to={runAddress(store.name)}>{runs[index]!.team} {shortRun(store.name)}</Link></th>)}</tr></thead>
          <tbody>
            {facts.map(([word, fact]) => <tr><th scope="row">{word}</th>{stores.map((store, index) => <td>{fact(runs[index]!, store)}</td>)}</tr>)}
          </tbody>
        </table>
        <h2>Request</h2>
        <Compared before={runs[0]!.goal} after={runs[1]!.goal} />
        <h2>Plan</h2>
        <Plans runs={runs} />
        <h2>Where time and money went</h2>
        <p class="compare-key">{stores.map((store, index) => <span><i class={index ? "is-second" : ""} />{shortRun(store.name)}</span>)}</p>
        <PairedBars runs={runs} stores={stores} />
        <h2>Answer</h2>
        <div class="compare-answers">
          {stores.map((store, index) => (
            <div>{runs[index]!.answer === undefined ? <p class="quiet">No answer was written.</p> : <Value value={runs[index]!.answer} run={store.name} cite={citeIn(runContext(store))} />}</div>
          ))}
        </div>
      </main>
    </>
  );
}

function lineOf(task?: Task): string {
  if (!task) return "";
  const needs = task.needs.length ? `, needs ${task.needs.map((need) => need.task).join(", ")}` : "";
  return `${task.worker}${needs}: ${task.instruction}`;
}

/** The plans task by task, by their ids. */
function Plans({ runs }: { runs: Run[] }): JSX.Element {
  const ids = [...new Set(runs.flatMap((run) => planned(run).map((task) => task.id)))];
  const line = (run: Run, id: string): string => lineOf(run.tasks.get(id));
  return (
    <dl class="plan-changes">
      {ids.map((id) => <><dt class="mono">{id}</dt><dd><Compared before={line(runs[0]!, id)} after={line(runs[1]!, id)} /></dd></>)}
    </dl>
  );
}

function add(sums: Map<string, number>, name: string, value: number): void {
  sums.set(name, (sums.get(name) ?? 0) + value);
}

function PairedBars({ runs, stores }: { runs: Run[]; stores: RunStore[] }): JSX.Element {
  const times = runs.map((run, index) => {
    const sums = new Map<string, number>();
    for (const slice of timeLedger(run, stores[index]!.end)) add(sums, SLICE_WORDS[slice.kind], slice.ended - slice.began);
    return sums;
  });
  const money = runs.map((run) => new Map(moneyLedger(run).rows));
  const pairs = (maps: Map<string, number>[], text: (value: number) => string): JSX.Element => {
    const names = [...new Set(maps.flatMap((map) => [...map.keys()]))];
    const top = Math.max(1e-9, ...maps.flatMap((map) => [...map.values()]));
    const rows = names.flatMap((name) => maps.map((map, index) => ({
      name: index === 0 ? name : "", share: (map.get(name) ?? 0) / top, text: map.has(name) ? text(map.get(name)!) : "–", class: index === 0 ? "" : "is-second",
    })));
    return <Bars rows={rows} />;
  };
  return <div class="compare-answers"><div>{pairs(times, seconds)}</div><div>{pairs(money, dollars)}</div></div>;
}
