// A new run: team, request, caps, and what it will take before it starts.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Refusal, isBlocked, useAction } from "./actions.tsx";
import { get, post } from "./api.ts";
import type { Finding, Plan } from "./events.ts";
import { dollars, plural, seconds } from "./format.ts";
import { parseLabels } from "./labels.tsx";
import { go, runAddress } from "./route.ts";
import type { Forecast } from "./run_store.ts";
import { shortTitle } from "./run_changes.ts";
import { Dialog } from "./shell.tsx";

type TeamInfo = {
  name: string;
  examples: string[];
  notice: string;
  limits: { seconds: number; usd: number | null; tokens: number | null; calls: number | null; max_tasks: number };
};
type Draft = {
  plan: Plan; findings: Finding[]; forecast: Forecast | null; unserved: string[]; notes: string[]; usd: number | null;
};

export function NewRun({ team: first, close }: { team: string; close: () => void }): JSX.Element {
  const [teams, setTeams] = useState<TeamInfo[]>([]);
  const [name, setName] = useState(first);
  const [goal, setGoal] = useState("");
  const [approve, setApprove] = useState(true);
  const [usd, setUsd] = useState("");
  const [labelText, setLabelText] = useState("");
  const labels = parseLabels(labelText);
  const [draft, setDraft] = useState<Draft | undefined>(undefined);
  const action = useAction();
  useEffect(() => {
    get<{ teams: TeamInfo[] }>("/api/teams").then((reply) => setTeams(reply.teams)).catch(() => {});
  }, []);
  const team = teams.find((each) => each.name === name) ?? teams[0];
  const budget = usd ? { budget: { usd: Number(usd) } } : {};
  const start = (): Promise<void> =>
    action.run(async () => {
      const created = await post<{ run: string }>("/api/runs", { team: team!.name, goal, approve, labels, ...budget });
      close();
      go(runAddress(created.run));
    });
  const ask = (): Promise<void> =>
    action.run(async () => setDraft(await post<Draft>(`/api/teams/${encodeURIComponent(team!.name)}/plan`, { goal })));
  const isReady = Boolean(team && goal.trim() && labels) && !isBlocked(action);
  const submit = (event: Event): void => {
    event.preventDefault();
    if (isReady) void start();
  };
  return (
    <Dialog title="New run" close={close}>
      <form class="new-run" onSubmit={submit}>
        <label>Team
          <select value={team?.name} onChange={(event) => { setName(event.currentTarget.value); setDraft(undefined); }}>
            {teams.map((each) => <option>{each.name}</option>)}
          </select>
        </label>
        <label>Request
          <textarea rows={4} autofocus value={goal} placeholder="What should the team find out or do?"
            onInput={(event) => { setGoal(event.currentTarget.value); setDraft(undefined); }} />
        </label>
        {team && team.examples.length > 0 && (
          <div class="new-examples">
            {team.examples.slice(0, 3).map((example) => <button type="button" title={example} onClick={() => setGoal(example)}>{example}</button>)}
          </div>
        )}
        <label class="check"><input type="checkbox" checked={approve} onChange={(event) => setApprove(event.currentTarget.checked)} />Show me the plan before anything starts</label>
        {team && <Caps team={team} usd={usd} setUsd={setUsd} />}
        <label>Labels
          <input value={labelText} placeholder="name: value, name: value" aria-invalid={!labels} onInput={(event) => setLabelText(event.currentTarget.value)} />
        </label>
        {!labels && <p class="failure">A label is a name, a colon and a value, such as customer: 1041.</p>}
        {draft && <DraftView draft={draft} />}
        <Refusal action={action} />
        <div class="dialog-acts">
          <button type="button" onClick={close}>Close</button>
          <button type="button" disabled={!isReady} onClick={ask}>{action.isBusy && !draft ? "Planning …" : "What will it take?"}</button>
          <button class="primary" disabled={!isReady}>Start</button>
        </div>
      </form>
    </Dialog>
  );
}

function Caps({ team, usd, setUsd }: { team: TeamInfo; usd: string; setUsd: (usd: string) => void }): JSX.Element {
  const { limits } = team;
  return (
    <p class="new-caps">
      <span>At most</span>
      <label class="inline">$<input type="number" min="0" step="0.01" aria-label="Most dollars" value={usd}
        placeholder={limits.usd === null ? "no cap" : String(limits.usd)} onInput={(event) => setUsd(event.currentTarget.value)} /></label>
      <span>{seconds(limits.seconds)}, {plural(limits.max_tasks, "task")}.</span>
      {team.notice && <span class="quiet">{team.notice}</span>}
    </p>
  );
}

function DraftView({ draft }: { draft: Draft }): JSX.Element {
  const { forecast, plan } = draft;
  const about = forecast?.usd?.about;
  return (
    <section class="new-draft" aria-label="The plan">
      <p>
        <b>{plural(plan.tasks.length, "task")}</b>
        {forecast && forecast.timed !== false && <>, <b>{seconds(forecast.makespan ?? forecast.critical)}</b> at best, {seconds(forecast.serial)} one after the other</>}
        {about !== undefined && about !== null && <>, about <b>{dollars(Math.round(about * 1e6))}</b></>}
      </p>
      <ol>{plan.tasks.map((task) => <li><b class="mono">{task.id}</b> {task.title || shortTitle(task.instruction)} <span class="quiet">{task.worker}</span></li>)}</ol>
      {draft.unserved.map((text) => <p class="quiet">Nobody can do this: {text}</p>)}
      {draft.findings.map((finding) => <p class="quiet">{finding.message}</p>)}
    </section>
  );
}
