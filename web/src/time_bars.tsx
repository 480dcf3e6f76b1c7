// The bars of one row of the time chart: attempts, tools inside them, waits, what is foreseen.

import type { ComponentChildren, JSX } from "preact";
import { seconds } from "./format.ts";
import { CALL_STEPS, type AskedQuestion, type Attempt, type Duty, type Run, type Task } from "./run_state.ts";

export const ROW = 26;
const BAR_TOP = 7;
const BAR = 12;
const MIDDLE = 13;
export type ToX = (at: number) => number;
const SKIPPED: Record<string, string> = { person: "by a person", budget: "the budget", deadline: "no time left" };

function Bar({ kind, from, to, x, thin = false, label }: {
  kind: string; from: number; to: number; x: ToX; thin?: boolean; label: string;
}): JSX.Element {
  const wide = Math.max(2, x(to) - x(from));
  return (
    <rect class={`tm-bar is-${kind}`} x={x(from)} width={wide} y={thin ? BAR_TOP + 3 : BAR_TOP} height={thin ? 6 : BAR} rx="2">
      <title>{label}</title>
    </rect>
  );
}

type DutyBarsProps = { duties: Duty[]; asked: AskedQuestion[]; x: ToX; now: number };

/** What the supervisor did, and `asked`: how long a person took over its plan. */
export function DutyBars({ duties, asked, x, now }: DutyBarsProps): JSX.Element {
  return (
    <>
      {asked.map((question) => (
        <Bar kind="person" from={question.asked} to={question.answered ?? now} x={x} label="waiting for a person" />
      ))}
      {duties.map((duty) => {
        const to = duty.ended ?? now;
        const kind = duty.ending === "failed" ? "failed" : "supervisor";
        return (
          <>
            <Bar kind={kind} from={duty.began} to={to} x={x} label={`${duty.duty}, ${seconds(to - duty.began)}`} />
            {duty.ending === "failed" && <Cross at={x(to)} />}
          </>
        );
      })}
    </>
  );
}

const Cross = ({ at }: { at: number }): JSX.Element => <path class="tm-cross" d={`M${at - 4},9l8,8m0,-8l-8,8`} />;

function AttemptBar({ attempt, x, now }: { attempt: Attempt; x: ToX; now: number }): JSX.Element {
  const to = attempt.ended ?? now;
  const kind = attempt.ending === "failed" ? "failed" : attempt.ending === "under way" ? "open" : "work";
  const label = `attempt ${attempt.attempt}, ${attempt.worker}, ${seconds(to - attempt.began)}`;
  const tools = attempt.steps.filter((step) => CALL_STEPS.has(step.kind));
  return (
    <>
      <Bar kind={kind} from={attempt.began} to={to} x={x} label={label} />
      {tools.map((step) => {
        const end = Math.min(step.ended ?? to, to);
        const wide = Math.max(1, x(end) - x(step.began));
        return (
          <rect class="tm-tool" x={x(step.began)} width={wide} y={BAR_TOP} height={BAR}>
            <title>{`${step.name}, ${seconds(end - step.began)}`}</title>
          </rect>
        );
      })}
      {attempt.ending === "failed" && <Cross at={x(to)} />}
    </>
  );
}

type NoteProps = { at: number; place: ToX; children: ComponentChildren };

/** Words behind a bar. */
const Note = ({ at, place, children }: NoteProps): JSX.Element => <text class="tm-note" x={place(at)} y="17">{children}</text>;

const SKIP_WIDTH = 110;

/** Why a task was skipped; where there is no room behind the moment, before it. */
function SkipNote({ task, at, x, place, right }: { task: Task; at: number; x: ToX; place: ToX; right: number }): JSX.Element {
  const why = task.because ? `needs ${task.because}` : (SKIPPED[task.skipped ?? ""] ?? task.skipped);
  if (place(at) + SKIP_WIDTH < right) return <Note at={at} place={place}>skipped: {why}</Note>;
  return <text class="tm-note" x={x(at) - 8} y="17" text-anchor="end">skipped: {why}</text>;
}

type TaskBarsProps = { task: Task; items: Task[]; x: ToX; place: ToX; right: number; now: number; isHeld: boolean };

/** `place`: where words go that belong behind a moment; `right`: where the chart ends. `isHeld`: a person has not approved the plan yet, so nothing is
 * in a queue. */
export function TaskBars({ task, items, x, place, right, now, isHeld }: TaskBarsProps): JSX.Element {
  if (task.status === "skipped" && !task.attempts.length) {
    return <SkipNote task={task} at={task.ended ?? now} x={x} place={place} right={right} />;
  }
  const ends = [...task.attempts, ...items.flatMap((item) => item.attempts)].map((attempt) => attempt.ended ?? now);
  const starts = [task.began, ...items.map((item) => item.began)].filter((at) => at !== undefined);
  const began = starts.length ? Math.min(...starts) : undefined;
  if (task.reused) return <Note at={task.ended ?? 0} place={place}>reused</Note>;
  const isOpen = task.status === "running" || task.status === "asking" || task.status === "expanded";
  const end = Math.max(...ends, task.ended ?? 0);
  return (
    <>
      {task.ready !== undefined && !isHeld && <Queue task={task} x={x} now={now} />}
      {task.waits.map((wait) => {
        const to = wait.ended ?? now;
        if (wait.kind === "person") return <Bar kind="person" from={wait.began} to={to} x={x} label="waiting for a person" />;
        if (wait.kind === "refine") return <Bar kind="refine" thin from={wait.began} to={to} x={x} label="rewriting the task" />;
        return <line class="tm-backoff" x1={x(wait.began) + 2} x2={x(to)} y1={MIDDLE} y2={MIDDLE} />;
      })}
      {[task, ...items].flatMap((each) => each.attempts).map((attempt) => <AttemptBar attempt={attempt} x={x} now={now} />)}
      {began !== undefined && !isOpen && <Note at={end} place={place}>{seconds(end - began)}</Note>}
    </>
  );
}

/** Ready, and not begun. */
function Queue({ task, x, now }: { task: Task; x: ToX; now: number }): JSX.Element | null {
  const from = task.ready!;
  const first = task.attempts.find((attempt) => attempt.began >= from)?.began ?? (task.status === "ready" ? now : from);
  if (first - from < 0.05) return null;
  return <line class="tm-queue" x1={x(from)} x2={x(first)} y1={MIDDLE} y2={MIDDLE} />;
}

export function Ghost({ span, now, x }: { span?: [number, number]; now: number; x: ToX }): JSX.Element | null {
  if (!span) return null;
  const from = Math.max(span[0], now);
  if (span[1] - from < 0.05) return null;
  return (
    <rect class="tm-ghost" x={x(from) + 0.5} width={Math.max(2, x(span[1]) - x(from) - 1)} y={BAR_TOP + 0.5} height={BAR - 1} rx="2">
      <title>{`foreseen: ${seconds(span[1] - span[0])}`}</title>
    </rect>
  );
}

/** The rows of the chart: in the order of the graph, so that nothing jumps. */
export type ChartRow = { id: string; task?: Task; duty?: "plan" | "answer" };

export function CriticalPath({ run, path, rows, x, now }: {
  run: Run; path: string[]; rows: ChartRow[]; x: ToX; now: number;
}): JSX.Element {
  const places = new Map(rows.map((row, index) => [row.id, index]));
  const shown = path
    .map((id) => ({ task: run.tasks.get(id)!, row: places.get(id) }))
    .filter(({ task, row }) => row !== undefined && task.began !== undefined);
  const y = (row: number): number => row * ROW + 22;
  return (
    <g class="tm-path">
      {shown.map(({ task, row }, index) => {
        const last = shown[index - 1];
        const began = x(task.began!);
        return (
          <>
            <line x1={began} x2={x(task.ended ?? now)} y1={y(row!)} y2={y(row!)} />
            {last && <path d={`M${x(last.task.ended ?? now)},${y(last.row!)}V${y(row!)}H${began}`} />}
          </>
        );
      })}
    </g>
  );
}
