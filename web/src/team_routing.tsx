// Who gets which requests in a team: how it went in the latest evaluation, and where a request would go now.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Refusal, isBlocked, useAction } from "./actions.tsx";
import { mayAct, post } from "./api.ts";
import { type EvalReport, type ReportSummary, type Section, evalsPath } from "./eval_types.ts";
import { dollars, moment } from "./format.ts";
import { Bars } from "./ledgers.tsx";
import { RouteMatrix } from "./route_matrix.tsx";
import { Link } from "./shell.tsx";
import { useGet } from "./use_get.ts";

type Route = {
  workers: string[]; router: string; confidence: number | null; scores: { worker: string; score: number }[]; unserved: string[];
  notes: string[]; usd: number | null;
};

export function TryOut({ team }: { team: string }): JSX.Element | null {
  const [goal, setGoal] = useState("");
  const [route, setRoute] = useState<Route | undefined>(undefined);
  const action = useAction();
  if (!mayAct()) return null;
  const ask = (event: Event): void => {
    event.preventDefault();
    setRoute(undefined);
    void action.run(async () => setRoute(await post<Route>(`/api/teams/${encodeURIComponent(team)}/route`, { goal })));
  };
  return (
    <section>
      <h3>Who would get this?</h3>
      <form class="row" onSubmit={ask}>
        <input class="try-goal" value={goal} required aria-label="A request to try" placeholder="A request; nothing is done about it"
          onInput={(event) => setGoal(event.currentTarget.value)} />
        <button disabled={isBlocked(action) || !goal.trim()}>{action.isBusy ? "Asking …" : "Try"}</button>
      </form>
      <Refusal action={action} />
      {route && <RouteView route={route} />}
    </section>
  );
}

function RouteView({ route }: { route: Route }): JSX.Element {
  const top = Math.max(1e-9, ...route.scores.map((each) => each.score));
  const how = route.router === "plan" ? "by a plan" : `by ${route.router}`;
  return (
    <div class="try-route" role="status">
      <p>
        {route.workers.length ? <b>{route.workers.join(", ")}</b> : "Nobody"} <span class="quiet">{how}
        {route.confidence !== null && `, ${Math.round(route.confidence * 100)} % sure`}
        {route.usd ? `, asking cost ${dollars(Math.round(route.usd * 1e6))}` : ""}</span>
      </p>
      <Bars rows={route.scores.map(({ worker, score }) => ({
        name: worker, share: score / top, text: score.toFixed(2), class: route.workers.includes(worker) ? "" : "is-second",
      }))} />
      {[...route.unserved, ...route.notes].map((text) => <p class="quiet">{text}</p>)}
    </div>
  );
}

/** The routing matrix of the latest report that has one. */
export function RoutingMatrix({ team }: { team: string }): JSX.Element | null {
  const reports = useGet<{ reports: ReportSummary[] }>(evalsPath(team)).value?.reports ?? [];
  const latest = reports.find((each) => each.sections.some((section) => section.kind === "routing"));
  const report = useGet<EvalReport>(latest ? evalsPath(team, latest.report) : "").value;
  const sections = report?.sections.filter((section) => section.routes.length > 0) ?? [];
  if (!latest || !sections.length) return null;
  return (
    <section>
      <h3>Routing</h3>
      {sections.map((section) => <Matrix section={section} />)}
      <p class="quiet">
        From the <Link class="text-link" to={`/evals/${encodeURIComponent(team)}/${encodeURIComponent(latest.report)}`}>evaluation of {moment(latest.at)}</Link>.
      </p>
    </section>
  );
}

function Matrix({ section }: { section: Section }): JSX.Element {
  const passed = section.scores.filter((score) => score.passed).length;
  return <><p class="quiet">{section.dataset}: {passed} of {section.scores.length} went where they should.</p><RouteMatrix routes={section.routes} /></>;
}
