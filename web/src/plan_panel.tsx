// The inspector of a plan that waits for approval: what it takes, what was assumed, who does what.

import type { JSX } from "preact";
import { Refs } from "./chips.tsx";
import { dollars, plural, seconds } from "./format.ts";
import type { RunContext } from "./run_context.ts";
import { type Run, planned } from "./run_state.ts";
import type { Forecast } from "./run_store.ts";
import { usualSeconds } from "./run_view.ts";
import { Icon } from "./states.tsx";
import { useGet } from "./use_get.ts";

/** What the server foresees, else a guess from what workers usually take. */
function timesOf(run: Run, forecast?: Forecast | null): { best: number; serial: number } {
  if (forecast) return { best: forecast.makespan ?? forecast.critical, serial: forecast.serial };
  const usual = usualSeconds(run);
  const ends = new Map<string, number>();
  let serial = 0;
  for (const task of planned(run)) {
    const took = usual(task.worker);
    serial += took;
    ends.set(task.id, took + Math.max(0, ...task.needs.map((need) => ends.get(need.task) ?? 0)));
  }
  return { best: Math.max(0, ...ends.values()), serial };
}

type TeamTools = { workers: { name: string; acts: string[] }[] };

/** The tools of each worker of a team that change something outside. */
function useActs(team: string): Map<string, string[]> {
  const workers = useGet<TeamTools>(team ? `/api/teams/${encodeURIComponent(team)}` : "").value?.workers ?? [];
  return new Map(workers.map((worker) => [worker.name, worker.acts]));
}

export function Tools({ names, acts }: { names: string[]; acts: string[] }): JSX.Element {
  return (
    <>
      {names.map((name, index) => (
        <>{index > 0 && ", "}{name}{acts.includes(name) && <> <span class="effect is-effect">acts</span></>}</>
      ))}
    </>
  );
}

export function PlanPanel({ context }: { context: RunContext }): JSX.Element {
  const run = context.store.shown.value;
  const forecast = context.store.info.value?.forecast;
  const { best, serial } = timesOf(run, forecast);
  const tasks = planned(run);
  const workers = new Map<string, string[]>();
  for (const task of tasks) workers.set(task.worker, [...(workers.get(task.worker) ?? []), task.id]);
  const assumed = run.notes.filter((note) => note.fact?.type === "assumed").map((note) => note.fact?.text ?? note.text);
  const about = forecast?.usd?.about;
  const acts = useActs(run.team);
  return (
    <div class="pn">
      <section>
        <h3>What it will take</h3>
        <dl class="pairs">
          {forecast?.timed !== false && <><dt>time</dt><dd><b>{seconds(best)}</b> at best, {seconds(serial)} one after the other</dd></>}
          <dt>money</dt>
          <dd>
            {about !== undefined && about !== null && <>about <b>{dollars(Math.round(about * 1e6))}</b>, </>}
            {run.budget.usd ? <>at most <b>{dollars(run.budget.usd * 1e6)}</b></> : "no cap in dollars"}
          </dd>
          <dt>tasks</dt><dd><b>{tasks.length}</b> for {plural(workers.size, "worker")}</dd>
        </dl>
        {forecast?.usd?.grows && <p class="quiet">{forecast.usd.grows}</p>}
      </section>
      {assumed.length > 0 && (
        <section>
          <h3>What the planner took for granted</h3>
          <ul class="plain-list">{[...new Set(assumed)].map((text) => <li>{text}</li>)}</ul>
        </section>
      )}
      {run.unserved.length > 0 && (
        <section>
          <h3>What nobody can do</h3>
          <ul class="gaps">{run.unserved.map((text) => <li><Icon state="skipped" /><div>{text}</div></li>)}</ul>
        </section>
      )}
      <section>
        <h3>Who does what</h3>
        <table class="who">
          <tbody>
            {[...workers].map(([worker, ids]) => (
              <tr>
                <th scope="row">{worker || "any worker"}</th>
                <td><Refs context={context} ids={ids} /></td>
                <td class="quiet"><Tools names={run.agents.get(worker)?.tools ?? []} acts={acts.get(worker) ?? []} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      {run.warnings.length > 0 && (
        <section>
          <h3>Warnings of the check</h3>
          <ul class="plain-list">{run.warnings.map((warning) => <li><code>{warning.place}</code> {warning.message}</li>)}</ul>
        </section>
      )}
    </div>
  );
}
