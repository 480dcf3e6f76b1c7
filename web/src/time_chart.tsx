// When each task was worked on: a row a task, a torn axis, the critical path, and a playhead that looks at the past.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { axisTime, seconds } from "./format.ts";
import { type LayoutTask, layersOf } from "./layout.ts";
import type { RunContext } from "./run_context.ts";
import { type AskedQuestion, type Run, type Task, itemsOf, openQuestion, planned } from "./run_state.ts";
import { ANSWER, PLAN, criticalPath, foresee } from "./run_view.ts";
import { Icon, stateOf } from "./states.tsx";
import { type ChartRow, CriticalPath, DutyBars, Ghost, ROW, TaskBars } from "./time_bars.tsx";
import { type TimeScale, timeScale } from "./time_scale.ts";
import { useSize } from "./use_size.ts";

const AXIS = 26;
const RIGHT = 76;
const MOST_DRAWN = 100;
export type RowFilter = "all" | "critical path" | "failed" | "slowest 20";
export const FILTERS: RowFilter[] = ["all", "critical path", "failed", "slowest 20"];

let lastLayers: { shape: string; layers: Map<string, number> } = { shape: "", layers: new Map() };

/** The layers of tasks, worked out again only when the plan is another. */
function layersFor(tasks: LayoutTask[]): Map<string, number> {
  const shape = tasks.map((task) => task.id).join(" ");
  if (shape !== lastLayers.shape) lastLayers = { shape, layers: layersOf(tasks) };
  return lastLayers.layers;
}

function rowsOf(run: Run, filter: RowFilter, path: string[], now: number): ChartRow[] {
  const tasks = planned(run);
  const layers = layersFor(tasks.map((task) => ({ id: task.id, needs: task.needs.map((need) => need.task) })));
  const sorted = tasks.sort((a, b) => layers.get(a.id)! - layers.get(b.id)! || a.order - b.order);
  const took = (task: Task): number => (task.began === undefined ? 0 : (task.ended ?? now) - task.began);
  const slowest = new Set([...sorted].sort((a, b) => took(b) - took(a)).slice(0, 20));
  const keeps: Record<RowFilter, (task: Task) => boolean> = {
    all: () => true,
    "critical path": (task) => path.includes(task.id),
    failed: (task) => task.status === "failed" || task.attempts.some((attempt) => attempt.ending === "failed"),
    "slowest 20": (task) => slowest.has(task),
  };
  const rows: ChartRow[] = sorted.filter(keeps[filter]).map((task) => ({ id: task.id, task }));
  if (run.duties.some((duty) => duty.duty === "plan")) rows.unshift({ id: PLAN, duty: "plan" });
  const isAnswered = run.duties.some((duty) => duty.duty === "answer");
  if (isAnswered || (!run.ended && tasks.length && run.combine !== "none")) rows.push({ id: ANSWER, duty: "answer" });
  return rows;
}

export function TimeChart({ context, filter }: { context: RunContext; filter: RowFilter }): JSX.Element {
  const { store } = context;
  const run = store.shown.value;
  const now = store.now;
  const end = store.end;
  const [box, size] = useSize<HTMLDivElement>();
  const [top, setTop] = useState(0);
  const path = criticalPath(run);
  const rows = rowsOf(run, filter, path, now);
  const isPast = store.moment.value !== undefined;
  const ahead = isPast || store.isInterrupted.value ? { at: new Map<string, [number, number]>(), end } : foresee(run, now, store.usualSeconds);
  const left = size.width < 560 ? 116 : 212;
  const width = Math.max(80, size.width - left - RIGHT);
  const whole = isPast ? store.latest : run;
  const scale = timeScale(whole, Math.max(end, 0.1), Math.max(ahead.end, end, 0.1), width);
  const x = (at: number): number => left + scale.x(at);
  const torn = scale.tears.map((tear): [number, number] => [x(tear.from), x(tear.to)]);
  const place = (at: number): number => notePlace(x(at), torn);
  const height = Math.max(rows.length * ROW + 8, size.height - AXIS);
  const from = rows.length > MOST_DRAWN ? Math.max(0, Math.floor(top / ROW) - 8) : 0;
  const until = rows.length > MOST_DRAWN ? from + Math.ceil(size.height / ROW) + 16 : rows.length;
  const shown = rows.slice(from, until);
  const grab = (event: PointerEvent): void => {
    event.preventDefault();
    const place = box.current!.getBoundingClientRect();
    const look = (at: PointerEvent): void => {
      const moment = scale.seconds(at.clientX - place.left - left);
      store.moment.value = scale.x(moment) > scale.x(end) - 4 ? undefined : Math.max(0, moment);
    };
    look(event);
    addEventListener("pointermove", look);
    addEventListener("pointerup", () => removeEventListener("pointermove", look), { once: true });
  };
  const layer = { x, scale, height, visible: size.height - AXIS, top };
  return (
    <div class="tm" ref={box} tabIndex={0} role="group" aria-label="When each task was worked on"
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}>
      <svg class="tm-axis" width={size.width} height={AXIS} onPointerDown={grab}>
        <rect class="tm-axis-area" width={size.width} height={AXIS} />
        {scale.tears.map((tear) => <rect class="tm-torn" x={x(tear.from)} width={x(tear.to) - x(tear.from)} height={AXIS} />)}
        {scale.ticks.filter((tick) => Math.abs(x(tick) - x(now)) > 20).map((tick) => <text x={x(tick)} y="16" text-anchor="middle">{axisTime(tick)}</text>)}
        <path class={`tm-head ${isPast ? "is-past" : ""}`} d={`M${x(now) - 5},10h10v6l-5,6l-5,-6z`}><title>Drag to see the run as it was</title></path>
      </svg>
      <svg class="tm-rows" width={size.width} height={height}>
        <Patterns />
        <Backdrop {...layer} />
        {shown.map((row, index) => (
          <Row key={row.id} row={row} y={(from + index) * ROW} left={left} width={size.width} context={context}>
            {row.task
              ? <TaskBars task={row.task} items={row.task.forEach ? itemsOf(run, row.task) : []} x={x} place={place} right={size.width} now={now} isHeld={openQuestion(run)?.what === "plan"} />
              : <DutyBars duties={run.duties.filter((duty) => duty.duty === row.duty)} asked={row.duty === "plan" ? planQuestions(run) : []} x={x} now={now} />}
            <Ghost span={ahead.at.get(row.id)} now={now} x={x} />
          </Row>
        ))}
        <CriticalPath run={run} path={path} rows={rows} x={x} now={now} />
        <line class={`tm-head-line ${isPast ? "is-past" : ""}`} x1={x(now)} x2={x(now)} y1="0" y2={height} />
        <line class="tm-grab" x1={x(now)} x2={x(now)} y1="0" y2={height} onPointerDown={grab} />
      </svg>
    </div>
  );
}

const NOTE_GAP = 8;

/** Words stand right of what they belong to, and never in a stretch that is torn out. */
function notePlace(end: number, torn: [number, number][]): number {
  const tear = torn.find(([from, to]) => end >= from - 2 && end <= to);
  return (tear ? tear[1] : end) + NOTE_GAP;
}

const planQuestions = (run: Run): AskedQuestion[] => run.questions.filter((question) => question.what === "plan");

const Patterns = (): JSX.Element => (
  <defs>
    <pattern id="tm-hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
      <rect class="tm-hatch-line" width="2" height="5" />
    </pattern>
    <pattern id="tm-person" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
      <rect class="tm-person-ground" width="7" height="7" />
      <rect class="tm-person-line" width="3" height="7" />
    </pattern>
  </defs>
);

type LayerProps = { x: (at: number) => number; scale: TimeScale; height: number; visible: number; top: number };

/** Lines of the axis, and the stretches that are torn out. */
function Backdrop({ x, scale, height, visible, top }: LayerProps): JSX.Element {
  const bottom = Math.min(height, top + visible);
  return (
    <g>
      {scale.ticks.map((tick) => <line class="tm-tick" x1={x(tick)} x2={x(tick)} y1="0" y2={height} />)}
      {scale.tears.map((tear) => {
        const from = x(tear.from);
        const to = x(tear.to);
        const edge = (at: number): string => `M${at},0l3,4l-6,8l6,8l-6,8l3,4V${height}`;
        return (
          <g>
            <title>{`${tear.reason}: ${seconds(tear.to - tear.from)}`}</title>
            <rect class="tm-torn" x={from} width={to - from} height={height} />
            <path class="tm-torn-edge" d={edge(from) + edge(to)} />
            <text class="tm-torn-word" transform={`translate(${(from + to) / 2 + 4},${(top + bottom) / 2}) rotate(-90)`} text-anchor="middle">{tear.reason}</text>
            <text class="tm-torn-time" x={(from + to) / 2} y={bottom - 8} text-anchor="middle">{tear.to - tear.from < 60 ? seconds(tear.to - tear.from) : axisTime(tear.to - tear.from)}</text>
          </g>
        );
      })}
    </g>
  );
}

type RowProps = { row: ChartRow; y: number; left: number; width: number; context: RunContext; children: JSX.Element[] };

function Row({ row, y, left, width, context, children }: RowProps): JSX.Element {
  const isSelected = context.selected === row.id;
  const isPointed = context.pointed.value === row.id;
  const task = row.task;
  const choose = (): void => context.select(row.id);
  return (
    <g class={`tm-row ${isSelected ? "is-selected" : ""} ${isPointed ? "is-pointed" : ""}`} transform={`translate(0,${y})`}
      onClick={choose}>
      <rect class="tm-band" width={width} height={ROW} />
      <foreignObject x="8" width={left - 20} height={ROW}>
        {task ? (
          <button class="tm-label" aria-pressed={isSelected} title={task.title}>
            <Icon state={stateOf(task)} /><b>{row.id}</b><span>{task.title}</span>
          </button>
        ) : (
          <button class="tm-label" aria-pressed={isSelected}><i class="tm-supervisor" /><b>{row.duty}</b></button>
        )}
      </foreignObject>
      {children}
    </g>
  );
}
