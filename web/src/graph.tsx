// The plan as a graph, left to right: cards, and edges that say what needs what. Fits its pane until it is zoomed.

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { CARD, Card, ItemCells } from "./graph_card.tsx";
import { type Layout, type Link, layoutPlan, linkPath } from "./layout.ts";
import type { RunContext } from "./run_context.ts";
import { type Run, type Task, planned } from "./run_state.ts";
import { coneOf, criticalPath } from "./run_view.ts";
import { Icon } from "./states.tsx";
import { useSize } from "./use_size.ts";
import { Wafer } from "./wafer.tsx";

const MOST_CARDS = 150;
const SIZE = { width: CARD.width, height: CARD.height, gapX: 44, gapY: 14 };
const MARGIN = 24;
type View = { scale: number; x: number; y: number };

export function Graph({ context }: { context: RunContext }): JSX.Element {
  const run = context.store.shown.value;
  const tasks = planned(run);
  if (!tasks.length) return <NoPlan run={run} />;
  const path = criticalPath(run);
  const chosen = run.tasks.get(context.selected);
  const cone = chosen && coneOf(run, chosen.parent ?? chosen.id);
  if (tasks.length > MOST_CARDS) return <Wafer context={context} tasks={tasks} path={path} cone={cone} />;
  return <PlanGraph context={context} tasks={tasks} path={path} cone={cone} />;
}

function NoPlan({ run }: { run: Run }): JSX.Element {
  if (!run.start) return <div class="gr gr-empty is-late" role="status">Loading …</div>;
  return (
    <div class="gr gr-empty">
      <Icon state={run.ended ? "skipped" : "running"} size={18} />
      <p>{run.ended ? "No plan was made." : "The supervisor is making a plan. Tasks appear as soon as it is checked."}</p>
    </div>
  );
}

export type GraphProps = { context: RunContext; tasks: Task[]; path: string[]; cone?: Set<string> };

function PlanGraph({ context, tasks, path, cone }: GraphProps): JSX.Element {
  const run = context.store.shown.value;
  const kept = useRef<Layout | undefined>(undefined);
  const chosen = run.tasks.get(context.selected);
  const opened = chosen && (chosen.parent ? run.tasks.get(chosen.parent) : chosen);
  const shape = tasks.map((task) => `${task.id}<${task.needs.map((need) => need.task)}`).join(" ");
  const layout = useMemo(() => {
    const wanted = tasks.map((task) => ({ id: task.id, needs: task.needs.map((need) => need.task) }));
    kept.current = layoutPlan(wanted, SIZE, kept.current);
    return kept.current;
  }, [shape]);
  const [box, size] = useSize<HTMLDivElement>();
  const [view, setView] = useState<View | undefined>(undefined);
  useEffect(() => setView(undefined), [size.width, size.height]);
  const shown = view ?? fitted(layout, size);
  const zoom = (factor: number, x = size.width / 2, y = size.height / 2): void => {
    const scale = Math.min(2, Math.max(0.1, shown.scale * factor));
    const ratio = scale / shown.scale;
    setView({ scale, x: x - (x - shown.x) * ratio, y: y - (y - shown.y) * ratio });
  };
  useZoomKeys(zoom, () => setView(undefined));
  const onWheel = (event: WheelEvent): void => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const place = box.current!.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 300), event.clientX - place.left, event.clientY - place.top);
  };
  const onPointerDown = (event: PointerEvent): void => {
    if ((event.target as Element).closest(".gr-card, button")) return;
    const start = { x: event.clientX - shown.x, y: event.clientY - shown.y };
    const move = (moved: PointerEvent): void =>
      setView({ scale: shown.scale, x: moved.clientX - start.x, y: moved.clientY - start.y });
    addEventListener("pointermove", move);
    addEventListener("pointerup", () => removeEventListener("pointermove", move), { once: true });
  };
  return (
    <div class="gr" ref={box} onWheel={onWheel} onPointerDown={onPointerDown}>
      <svg width={size.width} height={size.height} viewBox={`0 0 ${size.width} ${size.height}`} role="group" aria-label="Tasks and what they need">
        <g transform={`translate(${shown.x},${shown.y}) scale(${shown.scale})`}>
          {layout.links.map((link) => <EdgePath key={`${link.from} ${link.to}`} link={link} run={run} path={path} cone={cone} />)}
          {tasks.map((task) => {
            const place = layout.places.get(task.id)!;
            return (
              <Card key={task.id} task={task} run={run} x={place.x} y={place.y} context={context} isSmall={shown.scale < 0.45}
                isCritical={path.includes(task.id)} isFar={cone !== undefined && !cone.has(task.id)} />
            );
          })}
          {opened?.items && <ItemCells context={context} task={opened} run={run} place={layout.places.get(opened.id)!} />}
        </g>
      </svg>
      <div class="gr-zoom">
        <button title="Fit the whole plan (0)" onClick={() => setView(undefined)}>Fit</button>
        <button title="Closer (+)" aria-label="Closer" onClick={() => zoom(1.25)}>+</button>
        <button title="Farther (−)" aria-label="Farther" onClick={() => zoom(0.8)}>−</button>
      </div>
    </div>
  );
}

function fitted(layout: Layout, size: { width: number; height: number }): View {
  const wide = (size.width - 2 * MARGIN) / Math.max(layout.width, 1);
  const high = (size.height - 2 * MARGIN) / Math.max(layout.height, 1);
  const scale = Math.max(0.05, Math.min(1, wide, high));
  return { scale, x: (size.width - layout.width * scale) / 2, y: (size.height - layout.height * scale) / 2 };
}

function useZoomKeys(zoom: (factor: number) => void, fit: () => void): void {
  useEffect(() => {
    const press = (event: Event): void => {
      const { detail } = event as CustomEvent<string>;
      if (detail === "0") fit();
      if (detail === "+") zoom(1.25);
      if (detail === "-") zoom(0.8);
    };
    addEventListener("chargehand:zoom", press);
    return () => removeEventListener("chargehand:zoom", press);
  });
}

type EdgeProps = { link: Link; run: Run; path: string[]; cone?: Set<string> };

function EdgePath({ link, run, path, cone }: EdgeProps): JSX.Element {
  const from = run.tasks.get(link.from);
  const to = run.tasks.get(link.to);
  const need = to?.needs.find((each) => each.task === link.from)?.need ?? "required";
  const isLost = from?.status === "failed" || from?.status === "skipped";
  const place = path.indexOf(link.to);
  const classes = ["gr-edge", `is-${need}`];
  if (place > 0 && path[place - 1] === link.from) classes.push("is-critical");
  if (isLost) classes.push(to?.status === "skipped" ? "is-cut" : "is-gap");
  if (from?.status === "done" && to?.status === "running") classes.push("is-live");
  if (cone && !(cone.has(link.from) && cone.has(link.to))) classes.push("is-far");
  return <path d={linkPath(link.points)} class={classes.join(" ")} />;
}
