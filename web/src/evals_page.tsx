// Evaluations of a team: the reports that `chargehand eval` saved, the newest first.

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { EvalReportView } from "./eval_report.tsx";
import { type EvalReport, type ReportSummary, evalsPath, figure } from "./eval_types.ts";
import { moment } from "./format.ts";
import { Bar, Empty, Link, Loading, LoadProblem } from "./shell.tsx";
import { Icon } from "./states.tsx";
import { useGet } from "./use_get.ts";

export function EvalsPage({ team, report }: { team: string; report: string }): JSX.Element {
  const teams = useGet<{ teams: { name: string }[] }>("/api/teams");
  const names = teams.value?.teams.map((each) => each.name) ?? [];
  const shown = names.includes(team) ? team : (names[0] ?? "");
  const reports = useGet<{ reports: ReportSummary[] }>(shown && evalsPath(shown));
  const list = reports.value?.reports;
  const chosen = report || (list?.find((each) => !each.damage)?.report ?? "");
  useEffect(() => { document.title = "Evals · chargehand"; }, []);
  return (
    <>
      <Bar />
      <main class="page" id="main">
        <div class="page-tools"><h1>Evals</h1></div>
        <LoadProblem problem={teams.problem ?? reports.problem} />
        {list === undefined && !teams.problem && !reports.problem && <Loading />}
        <div class="two-panes">
          <nav class="pick-list" aria-label="Teams and reports">
            {names.map((name) => (
              <>
                <Link to={`/evals/${encodeURIComponent(name)}`} class={name === shown ? "is-on" : ""}>{name}</Link>
                {name === shown && list?.map((each) => <ReportLink team={name} summary={each} isOn={each.report === chosen} />)}
              </>
            ))}
          </nav>
          {list?.length === 0 && <NoReports team={shown} />}
          {shown && chosen && <Report key={`${shown} ${chosen}`} team={shown} name={chosen} />}
        </div>
      </main>
    </>
  );
}

function ReportLink({ team, summary, isOn }: { team: string; summary: ReportSummary; isOn: boolean }): JSX.Element {
  const isGood = !summary.damage && !summary.gates_failed;
  const cases = summary.sections.reduce((sum, section) => sum + section.cases, 0);
  const passed = summary.sections.reduce((sum, section) => sum + section.passed, 0);
  const headline = summary.sections.find((section) => section.headline)?.headline;
  return (
    <Link to={`/evals/${encodeURIComponent(team)}/${encodeURIComponent(summary.report)}`} class={`ev-pick ${isOn ? "is-on" : ""}`}
      title={summary.damage || summary.report}>
      <Icon state={isGood ? "done" : "failed"} />
      <span>
        {summary.at ? moment(summary.at) : summary.report}
        <span class="quiet">
          {summary.damage ? "cannot be read" : `${passed} of ${cases} passed`}
          {headline && `, accuracy ${figure(headline.value, headline.percent)}`}
        </span>
      </span>
    </Link>
  );
}

function NoReports({ team }: { team: string }): JSX.Element {
  return (
    <Empty title="Nothing was evaluated here yet">
      <p><code>chargehand eval</code> tries the cases of a dataset on the team {team} and saves a report, which is shown here.</p>
    </Empty>
  );
}

function Report({ team, name }: { team: string; name: string }): JSX.Element {
  const { value, problem } = useGet<EvalReport>(evalsPath(team, name));
  if (value) return <EvalReportView report={value} name={name} />;
  return problem ? <LoadProblem problem={problem} /> : <Loading />;
}

