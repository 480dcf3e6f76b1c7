// Too many tasks for cards: one cell a task, a column a layer, coloured by what became of it.

import type { JSX } from "preact";
import { useMemo, useRef } from "preact/hooks";
import type { GraphProps } from "./graph.tsx";
import { layersOf } from "./layout.ts";
import { attemptCount } from "./run_state.ts";
import { lookOf, stateOf, wordOf } from "./states.tsx";
import { useSize } from "./use_size.ts";

const CELL = 15;
const TOP = 30;
const LEFT = 24;
const GAP = 10;

export function Wafer({ context, tasks, path, cone }: GraphProps): JSX.Element {
  const [box, size] = useSize<HTMLDivElement>();
  const run = context.store.shown.value;
  const shape = tasks.map((task) => task.id).join(" ");
  const layers = useMemo(() => {
    const depths = layersOf(tasks.map((task) => ({ id: task.id, needs: task.needs.map((need) => need.task) })));
    const columns: string[][] = [];
    for (const task of tasks) (columns[depths.get(task.id)!] ??= []).push(task.id);
    return columns;
  }, [shape]);
  const rows = Math.max(4, Math.floor((size.height - TOP - 20) / CELL));
  const critical = new Set(path);
  const pointed = context.pointed.value;
  // a cell that looks as before is the same node as before, which Preact passes over
  const cells = useRef(new Map<string, { look: string; place: string; node: JSX.Element }>());
  const choose = (event: MouseEvent): void => {
    const id = (event.target as Element).closest("[data-task]")?.getAttribute("data-task");
    if (id) context.select(id);
  };
  let x = LEFT;
  const columns = layers.map((ids, layer) => {
    const at = x;
    x += Math.ceil(ids.length / rows) * CELL + GAP;
    return { ids, at, layer };
  });
  return (
    <div class="gr wf" ref={box} tabIndex={0} role="group" aria-label={`${tasks.length} tasks, a column for each layer`}>
      <svg width={Math.max(size.width, x + LEFT)} height={size.height} onClick={choose}>
        {columns.map(({ ids, at, layer }) => (
          <g key={layer} transform={`translate(${at},${TOP})`}>
            <text class="wf-layer" x="6" y="-10" text-anchor="middle">{layer + 1}</text>
            {ids.map((id, index) => {
              const task = run.tasks.get(id)!;
              const state = stateOf(task);
              const classes = ["wf-cell", `is-${lookOf(state)}`];
              if (critical.has(id)) classes.push("is-critical");
              if (cone && !cone.has(id)) classes.push("is-far");
              if (context.selected === id) classes.push("is-selected");
              if (pointed === id) classes.push("is-pointed");
              const place = `translate(${Math.floor(index / rows) * CELL},${(index % rows) * CELL})`;
              const isRetried = task.status === "done" && attemptCount(task) > 1;
              const look = `${classes.join(" ")} ${isRetried}`;
              const kept = cells.current.get(id);
              if (kept?.look === look && kept.place === place) return kept.node;
              const node = (
                <g key={id} class={classes.join(" ")} transform={place} role="button" data-task={id} aria-label={`${id}: ${task.title}, ${wordOf(state)}`}>
                  <rect width="12" height="12" rx="2.5" />
                  {task.status === "failed" && <path d="m3 3 6 6m0-6-6 6" />}
                  {isRetried && <circle cx="6" cy="6" r="2.2" />}
                  <title>{`${id} ${task.title}: ${wordOf(state)}`}</title>
                </g>
              );
              cells.current.set(id, { look, place, node });
              return node;
            })}
          </g>
        ))}
      </svg>
    </div>
  );
}
