// Where the time and the money of a run went.

import type { JSX } from "preact";
import { Refs } from "./chips.tsx";
import { count, dollars, plural, seconds } from "./format.ts";
import { type RunContext, pointsAt } from "./run_context.ts";
import type { Run } from "./run_state.ts";
import { type SliceKind, criticalPath, moneyLedger, timeLedger } from "./run_view.ts";

/** What the run was waiting for. */
export const SLICE_WORDS: Record<SliceKind, string> = {
  work: "work",
  plan: "planning",
  failed: "failed attempts",
  refine: "rewriting",
  backoff: "waiting to retry",
  person: "waiting for a person",
  queue: "waiting for a worker",
  answer: "writing the answer",
  down: "interrupted",
};

export function TimeLedger({ context }: { context: RunContext }): JSX.Element {
  const run = context.store.shown.value;
  const now = context.store.now;
  const slices = timeLedger(run, now);
  const sums = new Map<SliceKind, number>();
  for (const slice of slices) sums.set(slice.kind, (sums.get(slice.kind) ?? 0) + slice.ended - slice.began);
  const sorted = [...sums].sort((a, b) => b[1] - a[1]);
  const total = slices.reduce((sum, slice) => sum + slice.ended - slice.began, 0) || 1;
  const path = criticalPath(run);
  const label = sorted.map(([kind, sum]) => `${SLICE_WORDS[kind]} ${seconds(sum)}`).join(", ");
  return (
    <section>
      <h3>Where the time went <span class="quiet">{seconds(now)}</span></h3>
      {slices.length > 0 && (
        <div class="ledger" role="img" aria-label={label}>
          {slices.map((slice) => (
            <span class={`ledger-slice is-${slice.kind}`} style={{ flexGrow: (slice.ended - slice.began) / total }}
              title={`${slice.label}: ${seconds(slice.ended - slice.began)}`} {...pointsAt(slice.task)}
              onClick={() => { if (slice.task) context.select(slice.task); }} />
          ))}
        </div>
      )}
      <ul class="ledger-legend">
        {sorted.map(([kind, sum]) => (
          <li><i class={`ledger-swatch is-${kind}`} />{SLICE_WORDS[kind]}<b>{seconds(sum)}</b></li>
        ))}
      </ul>
      {path.length > 1 && <p class="ledger-path"><span class="quiet">Critical path </span><Refs context={context} ids={path} arrow /></p>}
    </section>
  );
}

const MOST_WORKERS = 6;

export function MoneyLedger({ run }: { run: Run }): JSX.Element {
  const { rows, failed } = moneyLedger(run);
  const top = rows[0]?.[1] ?? 1;
  const rest = rows.slice(MOST_WORKERS).reduce((sum, [, micros]) => sum + micros, 0);
  const shown = rest ? [...rows.slice(0, MOST_WORKERS), [`${rows.length - MOST_WORKERS} more`, rest] as [string, number]] : rows;
  return (
    <section>
      <h3>Where the money went <span class="quiet">{dollars(run.spent.micros)}</span></h3>
      {rows.length === 0 && (
        <p class="quiet">Nothing was paid for: {count(run.spent.tokens)} tokens, {plural(run.spent.calls, "call")}.</p>
      )}
      <Bars rows={shown.map(([name, micros]) => ({ name, share: micros / top, text: dollars(micros) }))} />
      {failed > 0 && (
        <p class="quiet">
          <b class="is-bad">{dollars(failed)}</b> of it for attempts that failed ({Math.round((failed / run.spent.micros) * 100)} %).
        </p>
      )}
    </section>
  );
}

export type BarRow = { name: string; share: number; text: string; class?: string };

export function Bars({ rows }: { rows: BarRow[] }): JSX.Element {
  return (
    <ul class="bars">
      {rows.map((row) => (
        <li>
          <span title={row.name}>{row.name}</span>
          <i><em class={row.class} style={{ width: `${Math.max(0.5, Math.min(1, row.share) * 100)}%` }} /></i>
          <b>{row.text}</b>
        </li>
      ))}
    </ul>
  );
}
