// The keys of the run page.

import { useEffect } from "preact/hooks";
import { query, setQuery } from "./route.ts";
import type { RunContext } from "./run_context.ts";
import { isTyping, say } from "./shell.tsx";
import { TABS, neighbourTask } from "./task_panel.tsx";

const press = (id: string): void => document.getElementById(id)?.click();

function onKey(context: RunContext, key: string): boolean {
  const { store } = context;
  const selected = query.value.get("task") ?? ""; // the latest, though it may not be drawn yet
  const run = store.shown.value;
  const keys: Record<string, () => void> = {
    j: () => setQuery({ task: neighbourTask(run, selected, 1) }),
    k: () => setQuery({ task: neighbourTask(run, selected, -1) }),
    Escape: () => { if (selected) setQuery({ task: "", tab: "" }); },
    a: () => press("approve"),
    r: () => press("reject"),
    x: () => press("cancel"),
    p: () => press("pause"),
    f: () => press("fork"),
    c: () => { void navigator.clipboard?.writeText(location.href).then(() => say("Link copied")); },
    "[": () => store.step(-1),
    "]": () => store.step(1),
  };
  const tab = TABS[Number(key) - 1];
  if (tab && selected) setQuery({ tab });
  else if (key === "0" || key === "+" || key === "-") dispatchEvent(new CustomEvent("chargehand:zoom", { detail: key }));
  else if (keys[key]) keys[key]();
  else return false;
  return true;
}

export function useRunKeys(context: RunContext): void {
  useEffect(() => {
    const listen = (event: KeyboardEvent): void => {
      if (!isTyping(event) && onKey(context, event.key)) event.preventDefault();
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  });
}
