// What the parts of the run page share: the run, what is selected, what is pointed at.

import { type Signal, signal } from "@preact/signals";
import { query, setQuery } from "./route.ts";
import type { RunStore } from "./run_store.ts";

export type RunContext = {
  store: RunStore;
  /** The task in the address; empty: the run itself. */
  selected: string;
  select: (task: string) => void;
  /** A task that a citation or a slice points at. */
  pointed: Signal<string>;
};

export function runContext(store: RunStore): RunContext {
  const selected = query.value.get("task") ?? "";
  return {
    store,
    selected,
    select: (task) => setQuery({ task: task === selected ? "" : task, tab: task ? (query.value.get("tab") ?? "") : "" }),
    pointed: pointed,
  };
}

const pointed = signal("");

/** What makes an element ring the card of a task while the pointer is on it. */
export const pointsAt = (task: string): { onMouseEnter: () => void; onMouseLeave: () => void } => ({
  onMouseEnter: () => { pointed.value = task; },
  onMouseLeave: () => { pointed.value = ""; },
});
