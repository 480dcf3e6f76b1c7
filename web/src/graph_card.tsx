// One task in the graph.

import type { JSX } from "preact";
import type { RunContext } from "./run_context.ts";
import { type Run, type Task, attemptCount, itemsOf } from "./run_state.ts";
import { Icon, lookOf, stateOf, wordOf } from "./states.tsx";
import { go, runAddress } from "./route.ts";

export const CARD = { width: 184, height: 54 };
const LINE = 25;

type Props = {
  task: Task; run: Run; x: number; y: number; context: RunContext; isSmall: boolean; isCritical: boolean; isFar: boolean;
};

/** A text in at most two lines. */
export function wrapTitle(text: string): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    const longer = line ? `${line} ${word}` : word;
    if (longer.length <= LINE) {
      line = longer;
      continue;
    }
    if (line) lines.push(line);
    line = word;
  }
  if (line) lines.push(line);
  const [first = "", second = ""] = lines;
  if (!second) return [cut(first)];
  return [cut(first), lines.length > 2 || second.length > LINE ? `${second.replace(/…$/, "").slice(0, LINE - 1).trimEnd()}…` : second];
}

const cut = (line: string): string => (line.length > LINE + 2 ? `${line.slice(0, LINE)}…` : line);

/** The task that an arrow key leads to: its first input, its first reader, or a neighbour. */
function neighbour(run: Run, task: Task, key: string): string | undefined {
  if (key === "ArrowLeft") return task.needs[0]?.task;
  if (key === "ArrowRight") {
    return [...run.tasks.values()].find((other) => other.needs.some((need) => need.task === task.id))?.id;
  }
  return undefined;
}

export function Card({ task, run, x, y, context, isSmall, isCritical, isFar }: Props): JSX.Element {
  const state = stateOf(task);
  const isSelected = context.selected === task.id;
  const classes = ["gr-card", `is-${lookOf(state)}`];
  if (isSmall) classes.push("is-small");
  if (isCritical) classes.push("is-critical");
  if (isFar) classes.push("is-far");
  if (isSelected) classes.push("is-selected");
  if (context.pointed.value === task.id) classes.push("is-pointed");
  const nested = task.attempts.at(-1)?.nested.at(-1);
  const badge = badgeOf(task, run);
  const worker = fitted(task.worker || "any worker", CARD.width - 58 - task.id.length * 6.8 - badgeWidth(badge));
  const name = [task.id, worker, ...wrapTitle(task.title)].join(" ");
  const label = `${name}${badge ? ` ${badge.text} ${badge.unit}` : ""}, ${wordOf(state)}`;
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "Enter") context.select(task.id);
    const next = neighbour(run, task, event.key);
    if (!next) return;
    event.preventDefault();
    document.querySelector<SVGElement>(`[data-task="${CSS.escape(next)}"]`)?.focus();
  };
  return (
    <g class={classes.join(" ")} transform={`translate(${x},${y})`} role="button" tabindex={0} aria-label={label}
      aria-pressed={isSelected} data-task={task.id} onClick={() => context.select(task.id)} onKeyDown={onKeyDown}>
      <title>{task.instruction}</title>
      {isSmall ? <SmallCard task={task} /> : <FullCard task={task} state={state} worker={worker} badge={badge} nested={nested} />}
    </g>
  );
}

function SmallCard({ task }: { task: Task }): JSX.Element {
  return (
    <>
      <rect class="gr-body" width={CARD.width} height={CARD.height} rx="10" />
      <text class="gr-big" x={CARD.width / 2} y={CARD.height / 2 + 9} text-anchor="middle">{task.id}</text>
    </>
  );
}

const LETTER = 5.9;

/** A text in a line of so many pixels. */
function fitted(text: string, width: number): string {
  const room = Math.max(1, Math.floor(width / LETTER));
  return text.length > room ? `${text.slice(0, room - 1)}…` : text;
}

/** How often it was tried, or how many of its items are done. */
function badgeOf(task: Task, run: Run): Badge | undefined {
  const items = task.forEach ? itemsOf(run, task) : [];
  const done = items.filter((item) => item.status === "done").length;
  if (items.length) return { text: `${done} of ${items.length}`, unit: "items", isCount: false };
  const attempts = attemptCount(task);
  return attempts > 1 ? { text: String(attempts), unit: "attempts", isCount: true } : undefined;
}

/** A text in the corner of a card; a count has a cross behind it, which is drawn, not read. */
type Badge = { text: string; unit: string; isCount: boolean };
type FullProps = { task: Task; state: string; worker: string; badge?: Badge; nested?: string };

function badgeWidth(badge?: Badge): number {
  if (!badge) return 0;
  return badge.isCount ? badge.text.length * 6.4 + 20 : badge.text.length * 5.8 + 12;
}

function FullCard({ task, state, worker, badge, nested }: FullProps): JSX.Element {
  const lines = wrapTitle(task.title);
  const wide = badgeWidth(badge);
  return (
    <>
      {task.forEach && <rect class="gr-stack" x="5" y="-5" width={CARD.width} height={CARD.height} rx="6" />}
      <rect class="gr-body" width={CARD.width} height={CARD.height} rx="6" />
      {nested && <rect class="gr-inner" x="3" y="3" width={CARD.width - 6} height={CARD.height - 6} rx="4" />}
      <rect class="gr-flag" y="6" width="4" height={CARD.height - 12} rx="2" />
      <g transform="translate(12,8)"><Icon state={state} /></g>
      <text class="gr-worker" x="32" y="19"><tspan class="gr-id">{task.id}</tspan>{" "}<tspan dx="3">{worker}</tspan></text>
      {" "}
      <text class="gr-title" x="12" y={lines.length > 1 ? 34 : 40}>{lines[0]}</text>
      {" "}
      {lines.length > 1 && <text class="gr-title" x="12" y="47">{lines[1]}</text>}
      {" "}
      {badge && (
        <g transform={`translate(${CARD.width - wide - 8},7)`}>
          <rect class="gr-badge" width={wide} height="16" rx="4" />
          <text class="gr-badge-text" x="6" y="12">{badge.text}</text>
          {badge.isCount && <path class="gr-badge-cross" d={`m${wide - 11},5.5 5,5m0,-5l-5,5`} />}
        </g>
      )}
      {nested && (
        <text class="gr-open" x={CARD.width - 8} y="47" text-anchor="end" onClick={(event) => {
          event.stopPropagation();
          go(runAddress(nested));
        }}>⤵ open</text>
      )}
    </>
  );
}

const CELL = 15;
const CELLS_IN_ROW = 11;
const CELLS_LEFT = 10;

type ItemCellsProps = { context: RunContext; task: Task; run: Run; place: { x: number; y: number } };

/** The items of a `for_each` task below its card, a cell each. */
export function ItemCells({ context, task, run, place }: ItemCellsProps): JSX.Element {
  const items = itemsOf(run, task);
  const height = Math.ceil(items.length / CELLS_IN_ROW) * CELL + CELLS_LEFT * 2 - 3;
  return (
    <g class="gr-items" transform={`translate(${place.x},${place.y + CARD.height + 4})`}>
      <rect class="gr-items-ground" width={CARD.width} height={height} rx="6" />
      {items.map((item, index) => {
        const state = stateOf(item);
        const x = CELLS_LEFT + (index % CELLS_IN_ROW) * CELL;
        const y = CELLS_LEFT + Math.floor(index / CELLS_IN_ROW) * CELL;
        const isSelected = context.selected === item.id;
        const choose = (): void => context.select(item.id);
        return (
          <g key={item.id} class={`wf-cell is-${lookOf(state)} ${isSelected ? "is-selected" : ""}`} transform={`translate(${x},${y})`} role="button"
            tabindex={0} data-task={item.id} aria-label={`${item.id}, ${wordOf(state)}`} aria-pressed={isSelected} onClick={choose}
            onKeyDown={(event) => { if (event.key === "Enter") choose(); }}>
            <rect width="12" height="12" rx="2.5" />
            {item.status === "failed" && <path d="m3 3 6 6m0-6-6 6" />}
            <title>{`${item.id}: ${wordOf(state)}`}</title>
          </g>
        );
      })}
    </g>
  );
}
