// One report of an evaluation: gates, changes since the baseline, and for each dataset its figures with their intervals,
// where requests were routed, and the cases that failed.

import type { JSX } from "preact";
import { CopyButton } from "./copy_button.tsx";
import { type EvalReport, type Gate, type Measure, type Score, type ScoreChange, type Section, figure, sectionName } from "./eval_types.ts";
import { dollars, moment, plural, seconds } from "./format.ts";
import { RouteMatrix } from "./route_matrix.tsx";
import { Icon } from "./states.tsx";

export function EvalReportView({ report, name }: { report: EvalReport; name: string }): JSX.Element {
  const missed = report.gates.filter((gate) => !gate.passed).length;
  return (
    <div class="ev">
      <h2>{report.team} <span class="quiet">{report.at ? moment(report.at) : name}</span><CopyButton text={JSON.stringify(report, null, 2)} label="Copy JSON" /></h2>
      {report.notice && <p class="quiet">{report.notice}</p>}
      {report.stopped && <p class="ev-notice">Not every case was tried: {report.stopped}</p>}
      {report.warnings.map((warning) => <p class="ev-notice">{warning}</p>)}
      {report.gates.length > 0 && (
        <section>
          <h3>Gates <span class={missed ? "is-bad" : "quiet"}>{missed ? `${missed} of ${report.gates.length} not reached` : "all reached"}</span></h3>
          <Gates gates={report.gates} />
        </section>
      )}
      {report.changes.length > 0 && <section><h3>Since the baseline</h3><Changes changes={report.changes} /></section>}
      {report.sections.map((section) => <SectionView section={section} gates={report.gates} />)}
    </div>
  );
}

const sign = (better: "more" | "less"): string => (better === "more" ? "≥" : "≤");
const wanted = (gate: Gate): string => `${sign(gate.better)} ${figure(gate.wanted, gate.percent)}`;

function Gates({ gates }: { gates: Gate[] }): JSX.Element {
  return (
    <ul class="ev-gates">
      {gates.map((gate) => (
        <li class={gate.passed ? "" : "is-missed"}>
          <Icon state={gate.passed ? "done" : "failed"} />
          <span>{sectionName(gate)}: <b>{gate.measure}</b>{gate.why && <span class="quiet"> {gate.why}</span>}</span>
          <b>{figure(gate.value, gate.percent)}</b>
          <span class="quiet">{wanted(gate)}, {gate.passed ? "reached" : "not reached"}</span>
        </li>
      ))}
    </ul>
  );
}

const VERDICTS = { better: "done", worse: "failed", "no difference shown": "skipped" } as const;

function Changes({ changes }: { changes: ScoreChange[] }): JSX.Element {
  return (
    <ul class="ev-changes">
      {changes.map((change) => (
        <li>
          <Icon state={VERDICTS[change.verdict]} />
          <div>
            <p>
              {sectionName(change)}: <b>{change.measure}</b> {figure(change.before, change.percent)} → <b>{figure(change.now, change.percent)}</b>, {change.verdict}
              <span class="quiet"> over {plural(change.count, "case")}{change.low !== change.high && `, difference ${figure(change.low, change.percent)} to ${figure(change.high, change.percent)}`}</span>
            </p>
            {change.lost.length > 0 && <p class="is-bad">lost {change.lost.join(", ")}</p>}
            {change.won.length > 0 && <p class="ev-won">won {change.won.join(", ")}</p>}
          </div>
        </li>
      ))}
    </ul>
  );
}

function SectionView({ section, gates }: { section: Section; gates: Gate[] }): JSX.Element {
  const failed = section.scores.filter((score) => !score.passed);
  const own = gates.filter((gate) => gate.dataset === section.dataset && gate.kind === section.kind);
  const passed = section.scores.length - failed.length;
  return (
    <section>
      <h3>{sectionName(section)} <span class="quiet">{passed} of {section.scores.length} passed</span></h3>
      <div class="tx-scroll" tabIndex={0} role="group" aria-label={`Figures of ${sectionName(section)}`}>
        <table class="grid">
          <thead><tr><th scope="col">Measure</th><th scope="col" class="is-number">Value</th><th scope="col">95 % interval</th><th scope="col" class="is-number">Cases</th></tr></thead>
          <tbody>
            {section.measures.map((measure) => <MeasureRow measure={measure} gate={own.find((gate) => gate.measure === measure.name)} />)}
          </tbody>
        </table>
      </div>
      {section.routes.length > 0 && <><h4>Where requests went</h4><RouteMatrix routes={section.routes} /></>}
      {failed.length > 0 && <h4>Failed <span class="quiet">{failed.length}</span></h4>}
      {failed.map((score) => <FailedCase score={score} />)}
    </section>
  );
}

function MeasureRow({ measure, gate }: { measure: Measure; gate?: Gate }): JSX.Element {
  const isMissed = gate?.passed === false;
  return (
    <tr>
      <th scope="row">{measure.name}</th>
      <td class={`is-number ${isMissed ? "is-bad" : ""}`}><b>{figure(measure.value, measure.percent)}</b></td>
      <td><Interval measure={measure} gate={gate} /></td>
      <td class="is-number">{measure.count}</td>
    </tr>
  );
}

/** A share on a scale from 0 to 100 %: its interval, its value, and what the gate wants. Other figures are in words. */
function Interval({ measure, gate }: { measure: Measure; gate?: Gate }): JSX.Element {
  const { low, high, percent } = measure;
  const words = low === high ? "" : `${figure(low, percent)} to ${figure(high, percent)}`;
  if (!percent) return <span class="quiet">{words}</span>;
  const at = (share: number): string => `${Math.min(1, Math.max(0, share)) * 100}%`;
  return (
    <span class="ev-interval">
      <i class="ev-scale" aria-hidden="true">
        <i class="ev-range" style={{ left: at(low), width: `calc(${at(high)} - ${at(low)})` }} />
        <i class="ev-value" style={{ left: at(measure.value) }} />
        {gate && <i class="ev-gate" style={{ left: at(gate.wanted) }} />}
      </i>
      <span class="quiet">{words}{gate && ` (gate ${wanted(gate)})`}</span>
    </span>
  );
}

function FailedCase({ score }: { score: Score }): JSX.Element {
  const facts = [score.error ? "could not be tried" : "", seconds(score.seconds), score.usd ? dollars(score.usd * 1e6) : ""];
  return (
    <details class="ev-case">
      <summary><Icon state="failed" /><b class="mono">{score.case}</b><span class="ev-why">{score.why.join("; ")}</span></summary>
      <dl class="arguments">
        {score.request && <><dt>asked</dt><dd>{score.request}</dd></>}
        {score.wanted && <><dt>wanted</dt><dd>{score.wanted}</dd></>}
        {score.got && <><dt>got</dt><dd>{score.got}</dd></>}
        {score.mistake && <><dt>mistake</dt><dd>{score.mistake}</dd></>}
        {score.why.map((why) => <><dt>why</dt><dd>{why}</dd></>)}
        {score.notes.map((note) => <><dt>note</dt><dd>{note}</dd></>)}
      </dl>
      <p class="quiet">{facts.filter(Boolean).join(", ")}</p>
    </details>
  );
}
