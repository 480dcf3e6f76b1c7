// The page: which view is at which path.

import { render } from "preact";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/runs.css";
import "./styles/run.css";
import "./styles/graph.css";
import "./styles/time.css";
import "./styles/panel.css";
import "./styles/other.css";
import "./styles/evals.css";
import "./styles/small.css";
import "./styles/print.css";
import { key, mayAct, meet, needsKey } from "./api.ts";
import { ComparePage } from "./compare_page.tsx";
import { EvalsPage } from "./evals_page.tsx";
import { MemoryPage } from "./memory_page.tsx";
import { go, path } from "./route.ts";
import { RunPage } from "./run_page.tsx";
import { RunsPage } from "./runs_page.tsx";
import { isNewOpen } from "./runs_tools.tsx";
import { HelpSheet, KeyForm, applyTheme, isHelpOpen, isTyping } from "./shell.tsx";
import { TeamsPage } from "./teams_page.tsx";

const decoded = (text: string): string => text.split("/").map(decodeURIComponent).join("/");

function View(): JSX.Element {
  const at = path.value;
  if (needsKey.value) return <KeyForm />;
  if (at.startsWith("/runs/")) return <RunPage key={at} name={decoded(at.slice("/runs/".length))} />;
  if (at.startsWith("/compare/")) {
    const [left = "", right = ""] = decoded(at.slice("/compare/".length)).split("/vs/");
    return <ComparePage key={at} left={left} right={right} />;
  }
  if (at.startsWith("/teams")) return <TeamsPage name={decoded(at.slice("/teams/".length))} />;
  if (at.startsWith("/memory")) return <MemoryPage team={decoded(at.slice("/memory/".length))} />;
  if (at.startsWith("/evals")) {
    const [, , team = "", report = ""] = at.split("/").map(decodeURIComponent);
    return <EvalsPage team={team} report={report} />;
  }
  return <RunsPage />;
}

/** The search of this view; one that has none leaves it to the list of runs. */
function search(): void {
  const find = (): HTMLInputElement | null => document.querySelector<HTMLInputElement>("#search");
  const here = find();
  if (here) return here.focus();
  go("/");
  requestAnimationFrame(() => find()?.focus());
}

let lastKey = "";

function onKey(event: KeyboardEvent): void {
  if (isTyping(event)) return;
  if (event.key === "?") isHelpOpen.value = true;
  else if (event.key === "/") search();
  else if (event.key === "n" && mayAct()) {
    if (path.value !== "/") go("/");
    isNewOpen.value = true;
  } else if (event.key === "r" && lastKey === "g") go("/");
  else {
    lastKey = event.key;
    return;
  }
  lastKey = "";
  event.preventDefault();
}

function App(): JSX.Element {
  useEffect(() => { void meet(); }, [key.value]);
  return <><View key={key.value} /><HelpSheet /></>;
}

addEventListener("keydown", onKey, { capture: true });
applyTheme();
render(<App />, document.getElementById("app")!);
