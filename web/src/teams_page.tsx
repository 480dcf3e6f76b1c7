// Teams: who is in them, with what, and how they have been doing.

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { dollars, plural, seconds } from "./format.ts";
import { Bar, Empty, Link, LoadProblem, Loading } from "./shell.tsx";
import { Tools } from "./plan_panel.tsx";
import { RoutingMatrix, TryOut } from "./team_routing.tsx";
import { useGet } from "./use_get.ts";

type Worker = {
  name: string; description: string; tags: string[]; tools: string[]; acts: string[]; model: string; concurrency: number;
};
type Team = {
  name: string; strategy: string; workers: Worker[]; examples: string[]; approve: boolean; memory: boolean; notice: string;
  limits: { seconds: number; usd: number | null; tokens: number | null; max_tasks: number; width: number };
};
type Health = {
  what: string; name: string; team?: string; attempts: number; rate: number; median: number | null; p95: number | null;
  state: string; failures: Record<string, number>;
};

export function TeamsPage({ name }: { name: string }): JSX.Element {
  const loaded = useGet<{ teams: Team[] }>("/api/teams");
  const teams = loaded.value?.teams;
  const health = useGet<{ workers: Health[] }>("/api/health/workers").value?.workers ?? [];
  useEffect(() => { document.title = "Teams · chargehand"; }, []);
  const team = teams?.find((each) => each.name === name) ?? teams?.[0];
  return (
    <>
      <Bar />
      <main class="page" id="main">
        <div class="page-tools"><h1>Teams</h1></div>
        <LoadProblem problem={loaded.problem} />
        {!teams && !loaded.problem && <Loading />}
        {teams?.length === 0 && <Empty title="No team is served here"><p>Start the server with <code>--team PATH</code>.</p></Empty>}
        <div class="two-panes">
          <nav class="pick-list" aria-label="Teams">
            {teams?.map((each) => (
              <Link to={`/teams/${encodeURIComponent(each.name)}`} class={each === team ? "is-on" : ""}>
                {each.name}<span class="quiet">{plural(each.workers.length, "worker")}</span>
              </Link>
            ))}
          </nav>
          {team && <TeamView key={team.name} team={team} health={health} />}
        </div>
      </main>
    </>
  );
}

function TeamView({ team, health }: { team: Team; health: Health[] }): JSX.Element {
  const { limits } = team;
  const known = health.filter((each) => !each.team || each.team === team.name);
  const tools = new Set(team.workers.flatMap((worker) => worker.tools));
  const shownTools = known.filter((each) => each.what === "tool" && tools.has(each.name));
  return (
    <div>
      <h2>{team.name}</h2>
      <p class="quiet">
        {team.strategy} · {plural(limits.max_tasks, "task")} at most, {limits.width} at once · {seconds(limits.seconds)}
        {limits.usd !== null && <> · {dollars(limits.usd * 1e6)}</>}
        {team.approve && " · plans need approval"}
        {team.memory && <> · <Link class="text-link" to={`/memory/${encodeURIComponent(team.name)}`}>memory</Link></>}
      </p>
      {team.notice && <p class="quiet">{team.notice}</p>}
      <div class="tx-scroll" tabIndex={0} role="group" aria-label="Workers">
        <table class="grid">
          <Heads words={["Worker", "Does", "Tools", "Tags", "Model"]} figures={["At once", "Attempts", "Median", "Errors"]} last="Breaker" />
          <tbody>
            {team.workers.map((worker) => <WorkerRow worker={worker} health={known.find((each) => each.what === "worker" && each.name === worker.name)} />)}
          </tbody>
        </table>
      </div>
      {shownTools.length > 0 && (
        <>
          <h3>Tools, as they were called</h3>
          <div class="tx-scroll" tabIndex={0} role="group" aria-label="Tools">
            <table class="grid is-narrow">
              <Heads words={["Tool"]} figures={["Calls", "Median", "95 of 100", "Errors"]} />
              <tbody>
                {shownTools.map((tool) => (
                  <tr><th scope="row" class="mono">{tool.name}</th><td class="is-number">{tool.attempts}</td><td class="is-number">{time(tool.median)}</td><td class="is-number">{time(tool.p95)}</td><td class="is-number">{share(tool)}</td></tr>
                ))}
              </tbody>
            </table>
          </div>
        </>
      )}
      <TryOut team={team.name} />
      <RoutingMatrix team={team.name} />
      {team.examples.length > 0 && <><h3>Examples</h3><ul class="plain-list">{team.examples.map((example) => <li>{example}</li>)}</ul></>}
    </div>
  );
}

function Heads({ words, figures, last }: { words: string[]; figures: string[]; last?: string }): JSX.Element {
  return (
    <thead>
      <tr>
        {words.map((word) => <th scope="col">{word}</th>)}
        {figures.map((word) => <th scope="col" class="is-number">{word}</th>)}
        {last && <th scope="col">{last}</th>}
      </tr>
    </thead>
  );
}

const time = (value: number | null | undefined): string => (value === null || value === undefined ? "–" : seconds(value));
const share = (health: Health): JSX.Element => (
  <span class={health.rate > 0.2 ? "is-bad" : ""} title={Object.entries(health.failures).map(([kind, number]) => `${kind} ${number}`).join(", ")}>
    {Math.round(health.rate * 100)} %
  </span>
);

function WorkerRow({ worker, health }: { worker: Worker; health?: Health }): JSX.Element {
  return (
    <tr>
      <th scope="row">{worker.name}</th>
      <td class="grid-text">{worker.description}</td>
      <td class="mono grid-names"><Tools names={worker.tools} acts={worker.acts} /></td>
      <td>{worker.tags.join(", ")}</td>
      <td class="mono">{worker.model}</td>
      <td class="is-number">{worker.concurrency || "any"}</td>
      <td class="is-number">{health?.attempts ?? 0}</td>
      <td class="is-number">{time(health?.median)}</td>
      <td class="is-number">{health ? share(health) : "–"}</td>
      <td>{health?.state ?? "–"}</td>
    </tr>
  );
}
