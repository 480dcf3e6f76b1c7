// Chips that name tasks: citations, needs, critical paths.

import type { JSX } from "preact";
import { type RunContext, pointsAt } from "./run_context.ts";
import type { Cite } from "./text.tsx";

export function Ref({ context, id, mark = "" }: { context: RunContext; id: string; mark?: string }): JSX.Element {
  const task = context.store.shown.value.tasks.get(id);
  const isLost = task?.status === "failed" || task?.status === "skipped";
  return (
    <button class={`ref ${isLost ? "is-bad" : ""}`} title={task?.title} {...pointsAt(id)}
      onClick={(event) => { event.stopPropagation(); context.select(id); }}>{id}{mark}</button>
  );
}

export function Refs({ context, ids, arrow = false }: { context: RunContext; ids: string[]; arrow?: boolean }): JSX.Element {
  return <>{ids.map((id, index) => <>{arrow && index > 0 && <span class="quiet"> → </span>}<Ref context={context} id={id} /></>)}</>;
}

/** Makes chips of what an answer cites, where that is a task of the run. */
export const citeIn = (context: RunContext): Cite => (id) =>
  context.store.shown.value.tasks.has(id) ? <Ref context={context} id={id} /> : undefined;
