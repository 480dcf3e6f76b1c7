// A result, an argument or anything else that a task holds: text, tables, charts, figures, else JSON.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get, runPath } from "./api.ts";
import type { Event } from "./events.ts";
import { type Cite, Markdown } from "./text.tsx";

type Table = { kind: "table"; columns: string[]; rows: unknown[][]; source?: string; more?: number; note?: string };
type Chart = { kind: "chart"; title: string; svg?: string; summary?: string; source?: string };
type Figure = { kind: "figure"; value?: string; text?: string; unit?: string };
type Result = { text?: string; artifacts?: unknown[]; error?: string; value?: unknown; sources?: string[] };
/** What stands in the place of a value that was too long to send with its entry. */
type Left = { $entry: number; bytes: number };

const MOST_ROWS = 50;
const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
export const isLeft = (value: unknown): value is Left => isRecord(value) && typeof value.$entry === "number";

export function Value({ value, run, cite }: { value: unknown; run: string; cite?: Cite }): JSX.Element {
  if (isLeft(value)) return <LeftValue left={value} run={run} cite={cite} />;
  if (typeof value === "string") return <Markdown text={value} cite={cite} />;
  if (isRecord(value)) {
    if (value.kind === "table") return <TableView table={value as Table} />;
    if (value.kind === "chart") return <ChartView chart={value as Chart} />;
    if (value.kind === "figure") return <FigureView figure={value as Figure} />;
    const { text, artifacts, error, value: inner } = value as Result;
    if (typeof error === "string") return <p class="failure">{error}</p>;
    if (inner !== undefined && Object.keys(value).length <= 2) return <Value value={inner} run={run} cite={cite} />;
    if (typeof text === "string" || Array.isArray(artifacts)) {
      return (
        <>
          {text && <Markdown text={text} cite={cite} />}
          {(artifacts ?? []).map((artifact) => <Value value={artifact} run={run} cite={cite} />)}
        </>
      );
    }
  }
  return <pre tabIndex={0}>{JSON.stringify(value, null, 2)}</pre>;
}

function LeftValue({ left, run, cite }: { left: Left; run: string; cite?: Cite }): JSX.Element {
  const value = useLeft(left, run);
  if (value === undefined) return <p class="quiet">Loading {Math.ceil(left.bytes / 1024)} kB …</p>;
  return <Value value={value} run={run} cite={cite} />;
}

/** A value that was left out of its entry: read when it is looked at. */
export function useLeft(value: unknown, run: string): unknown {
  const [loaded, setLoaded] = useState<unknown>(undefined);
  const seq = isLeft(value) ? value.$entry : 0;
  useEffect(() => {
    if (!seq) return;
    let isWanted = true;
    setLoaded(undefined);
    get<{ event: Event }>(`${runPath(run)}/entries/${seq}`)
      .then(({ event }) => { if (isWanted) setLoaded(event.result ?? event.messages ?? event.answer ?? null); })
      .catch(() => { if (isWanted) setLoaded("This could not be loaded. Select the task again."); });
    return () => { isWanted = false; };
  }, [seq, run]);
  return seq ? loaded : value;
}

export function TableView({ table }: { table: Table }): JSX.Element {
  const more = (table.more ?? 0) + Math.max(0, table.rows.length - MOST_ROWS);
  const source = [table.source, more > 0 ? `${more} more rows` : "", table.note].filter(Boolean).join(" · ");
  return (
    <figure class="value-table">
      <div class="tx-scroll" tabIndex={0} role="group" aria-label={table.source || "Table"}>
        <table>
          <thead><tr>{table.columns.map((column) => <th scope="col">{column}</th>)}</tr></thead>
          <tbody>
            {table.rows.slice(0, MOST_ROWS).map((row) => (
              <tr>{row.map((cell) => <td class={typeof cell === "number" ? "is-number" : ""}>{cellText(cell)}</td>)}</tr>
            ))}
          </tbody>
        </table>
      </div>
      {source && <figcaption>{source}</figcaption>}
    </figure>
  );
}

const cellText = (cell: unknown): string => {
  if (cell === null || cell === undefined) return "–";
  return typeof cell === "object" ? JSON.stringify(cell) : String(cell);
};

/** An SVG that a tool made: shown as an image, in which no script runs and nothing is fetched. */
function ChartView({ chart }: { chart: Chart }): JSX.Element {
  const [source, setSource] = useState("");
  useEffect(() => {
    if (!chart.svg) return;
    const url = URL.createObjectURL(new Blob([chart.svg], { type: "image/svg+xml" }));
    setSource(url);
    return () => URL.revokeObjectURL(url);
  }, [chart.svg]);
  return (
    <figure class="value-chart">
      {source && <img src={source} alt={chart.summary || chart.title} />}
      <figcaption>{[chart.title, chart.source].filter(Boolean).join(" · ")}</figcaption>
    </figure>
  );
}

function FigureView({ figure }: { figure: Figure }): JSX.Element {
  return <p><b>{figure.value ?? figure.text}</b> {figure.unit}</p>;
}
