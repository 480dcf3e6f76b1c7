// The inspector of the run: its answer, what is missing, where time and money went, notes.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get, runPath } from "./api.ts";
import { Ref, Refs, citeIn } from "./chips.tsx";
import { CopyButton } from "./copy_button.tsx";
import { Decisions } from "./decisions.tsx";
import type { Gap } from "./events.ts";
import { seconds } from "./format.ts";
import { MoneyLedger, TimeLedger } from "./ledgers.tsx";
import type { RunContext } from "./run_context.ts";
import { type Run, type Statement, openQuestion, planned } from "./run_state.ts";
import { openGaps, rootGaps } from "./run_view.ts";
import { Icon } from "./states.tsx";
import { Markdown } from "./text.tsx";
import { Thoughts } from "./thoughts.tsx";
import { Value } from "./value_view.tsx";

export function RunPanel({ context }: { context: RunContext }): JSX.Element {
  const run = context.store.shown.value;
  const isFailed = run.ended && run.answer === undefined;
  return (
    <div class="pn">
      {isFailed && <MissingParts context={context} run={run} />}
      <Answer context={context} run={run} />
      {!isFailed && <MissingParts context={context} run={run} />}
      {run.start > 0 && <TimeLedger context={context} />}
      {run.start > 0 && <MoneyLedger run={run} />}
      <Decisions run={run} context={context} />
      <Notes run={run} context={context} />
    </div>
  );
}

/** Where the results are of a run that ended before its answer was written. */
function FinishedResults({ context, run }: { context: RunContext; run: Run }): JSX.Element | null {
  const done = planned(run).filter((task) => task.status === "done").map((task) => task.id);
  return done.length ? <p>Finished results: <Refs context={context} ids={done} /></p> : null;
}

function Answer({ context, run }: { context: RunContext; run: Run }): JSX.Element {
  if (run.answer === undefined || run.answer === null) {
    const isPast = context.store.moment.value !== undefined;
    const waits = openQuestion(run) && !isPast ? "It comes after your decision." : "It is written when the tasks are settled.";
    const words = run.ended || isPast ? "" : context.store.words.value.answer;
    const thoughts = run.ended || isPast ? "" : context.store.thoughts.value.answer;
    return (
      <section>
        <h3>Answer</h3>
        <p class="quiet">{run.ended ? "No answer was written." : waits}</p>
        {run.ended && <FinishedResults context={context} run={run} />}
        <Thoughts text={thoughts} />
        {words && <p class="pn-words">{words}</p>}
      </section>
    );
  }
  return (
    <section>
      <h3>Answer<CopyButton text={typeof run.answer === "string" ? run.answer : JSON.stringify(run.answer)} /></h3>
      <div class="pn-answer">
        {typeof run.answer === "string"
          ? <MarkedAnswer context={context} text={run.answer} statements={run.statements} />
          : <Value value={run.answer} run={run.run} cite={citeIn(context)} />}
      </div>
      {run.ended && <EvidenceLine run={run} context={context} />}
    </section>
  );
}

function MarkedAnswer({ context, text, statements }: {
  context: RunContext; text: string; statements: Statement[];
}): JSX.Element {
  const doubtful = statements.filter((statement) => statement.origin !== "tool" && statement.origin !== "input");
  const mark = (part: string): ComponentChildren => markDoubtful(part, doubtful);
  return <Markdown text={text} cite={citeIn(context)} mark={doubtful.length ? mark : undefined} />;
}

const CONFLICTS: Record<string, string> = {
  row: "the tools have it in another row",
  unit: "the tools have it in another currency",
};

/** Underline figures that nothing supports, with the reason. */
function markDoubtful(text: string, doubtful: Statement[]): ComponentChildren {
  for (const statement of doubtful) {
    const at = text.indexOf(statement.text);
    if (at < 0) continue;
    const why = CONFLICTS[statement.conflict ?? ""] ?? (statement.origin === "words" ? "only a worker says so" : "no tool returned it");
    const rest = text.slice(at + statement.text.length);
    return <>{markDoubtful(text.slice(0, at), doubtful)}<span class="pn-doubt" title={why}>{statement.text}</span>{markDoubtful(rest, doubtful)}</>;
  }
  return text;
}

type Evidence = { coverage: { covered: string[]; missing: string[] }; untraced: unknown[]; line: string };

/** Green where all is covered and traced, red where nothing is covered. */
function gradeOf({ coverage, untraced }: Evidence): string {
  if (!coverage.covered.length) return "low";
  return coverage.missing.length || untraced.length ? "medium" : "high";
}

function EvidenceLine({ run, context }: { run: Run; context: RunContext }): JSX.Element | null {
  const [evidence, setEvidence] = useState<Evidence | undefined>(undefined);
  useEffect(() => {
    if (context.store.example) return;
    get<Evidence>(`${runPath(run.run)}/evidence`).then(setEvidence).catch(() => setEvidence(undefined));
  }, [run.run, context.store.info.value]);
  const others = run.sections.filter((section) => section.kind !== "counted" && section.kind !== "gaps");
  return (
    <>
      {others.map((section) => <Markdown text={section.text} cite={citeIn(context)} />)}
      {evidence && <p class={`evidence is-${gradeOf(evidence)}`}><b>Evidence</b> {evidence.line}</p>}
    </>
  );
}

export function MissingParts({ context, run }: { context: RunContext; run: Run }): JSX.Element | null {
  const gaps = openGaps(run);
  if (!gaps.length) return null;
  return (
    <section>
      <h3>Missing <span class="quiet">{gaps.length}</span></h3>
      <ul class="gaps">
        {rootGaps(gaps).map(({ gap, lost }) => (
          <li class={gap.task ? "is-link" : ""} onClick={() => { if (gap.task) context.select(gap.task); }}>
            <Icon state={gap.status === "failed" ? "failed" : "skipped"} />
            <div><GapText gap={gap} /><Lost context={context} ids={lost} /></div>
          </li>
        ))}
      </ul>
    </section>
  );
}

function GapText({ gap }: { gap: Gap }): JSX.Element {
  const message = gap.message.replace(/ \(before that, .*\)$/s, "") || `skipped: ${gap.because ? `needs ${gap.because}` : gap.reason}`;
  return <><b>{gap.task || (gap.status === "unserved" ? "not served" : gap.status)}</b> {message}</>;
}

function Lost({ context, ids }: { context: RunContext; ids: string[] }): JSX.Element | null {
  if (!ids.length) return null;
  if (ids.length > 6) return <span class="gaps-lost">and so {ids.length} more were skipped</span>;
  return (
    <span class="gaps-lost">
      and so {ids.map((id) => <Ref context={context} id={id} />)} {ids.length === 1 ? "was" : "were"} skipped
    </span>
  );
}

const MOST_NOTES = 12;

function Notes({ run, context }: { run: Run; context: RunContext }): JSX.Element | null {
  const [isWhole, setWhole] = useState(false);
  if (!run.notes.length) return null;
  const shown = isWhole ? run.notes : run.notes.slice(0, MOST_NOTES);
  return (
    <section>
      <h3>Notes <span class="quiet">{run.notes.length}</span></h3>
      <ul class="notes">
        {shown.map((note) => (
          <li><span class="mono">{seconds(note.at)}</span><span>{note.task && <Ref context={context} id={note.task} />} {note.text}</span></li>
        ))}
      </ul>
      {run.notes.length > shown.length && <button class="small" onClick={() => setWhole(true)}>All {run.notes.length}</button>}
    </section>
  );
}
