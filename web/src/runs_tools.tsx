// The line above the list of runs: search, filters, what to compare, and a new run.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { mayAct } from "./api.ts";
import { go, setQuery } from "./route.ts";
import type { RunFilter } from "./runs_store.ts";
import { wordOf } from "./states.tsx";
import { useGet } from "./use_get.ts";

export const isNewOpen = signal(false);
const STATES = ["running", "waiting", "needs_input", "paused", "complete", "partial", "failed", "cancelled", "interrupted", "damaged"];
const COSTS = ["0.01", "0.10", "1", "10"];
type Teams = { teams: { name: string; workers: { name: string }[] }[] };

export function RunsTools({ filter, chosen }: { filter: RunFilter; chosen: string[] }): JSX.Element {
  const teams = useGet<Teams>("/api/teams").value?.teams ?? [];
  const shown = teams.filter((team) => !filter.team || team.name === filter.team);
  const workers = [...new Set(shown.flatMap((team) => team.workers.map((worker) => worker.name)))].sort();
  return (
    <div class="page-tools">
      <h1>Runs</h1>
      <span class="grow" />
      {chosen.length > 0 && (
        <button disabled={chosen.length < 2} onClick={() => go(`/compare/${chosen.join("/vs/")}`)}>
          {chosen.length < 2 ? "Choose another to compare" : "Compare"}
        </button>
      )}
      <input id="search" type="search" placeholder="Search requests and names  /" aria-label="Search" value={filter.text}
        onInput={(event) => setQuery({ text: event.currentTarget.value })} />
      <Choice label="Team" none="All teams" value={filter.team} options={teams.map((team) => [team.name, team.name])}
        choose={(team) => setQuery({ team, worker: "" })} />
      <Choice label="Worker" none="Any worker" value={filter.worker} options={workers.map((worker) => [worker, worker])}
        choose={(worker) => setQuery({ worker })} />
      <Choice label="State" none="Any state" value={filter.state} options={STATES.map((state) => [state, wordOf(state)])}
        choose={(state) => setQuery({ state })} />
      <Choice label="Cost" none="Any cost" value={filter.cost} options={COSTS.map((cost) => [cost, `$${cost} or more`])}
        choose={(cost) => setQuery({ cost })} />
      {mayAct() && <button class="primary" id="new-run" onClick={() => { isNewOpen.value = true; }}>New run <kbd>n</kbd></button>}
    </div>
  );
}

type ChoiceProps = { label: string; none: string; value: string; options: [string, string][]; choose: (value: string) => void };

/** One filter; what the address names is kept though it is not among the options. */
function Choice({ label, none, value, options, choose }: ChoiceProps): JSX.Element {
  const all = value && !options.some(([option]) => option === value) ? [...options, [value, value]] : options;
  return (
    <select aria-label={label} value={value} class={value ? "is-set" : ""} onChange={(event) => choose(event.currentTarget.value)}>
      <option value="">{none}</option>
      {all.map(([option, word]) => <option value={option}>{word}</option>)}
    </select>
  );
}
