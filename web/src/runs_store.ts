// The list of runs, kept up to date by the server's stream of changes.

import { signal } from "@preact/signals";
import { type Problem, get, isOnline } from "./api.ts";
import { follow } from "./stream.ts";

export type RunLine = {
  run: string;
  team: string;
  goal: string;
  state: string;
  started: number;
  changed: number;
  ended: number | null;
  reason: string;
  spent: { usd: number; tokens: number; calls: number };
  tasks: number;
  done: number;
  gaps: number;
  failed: number;
  running: number;
  parent: string;
  source: string;
  question: { what: string; task: string; text: string; tool: string } | null;
  labels: Record<string, string>;
};
/** The names are those of the query of the server, and of the page's own address. */
export const FILTERS = ["text", "team", "state", "worker", "label", "cost"] as const;
export type RunFilter = Record<(typeof FILTERS)[number], string>;
type RunPage = { runs: RunLine[]; next: number | null };

const PAGE = 60;
const RELOAD_AFTER = 300;

function hasLabel(line: RunLine, label: string): boolean {
  const at = label.indexOf(":");
  return line.labels[label.slice(0, at)] === label.slice(at + 1);
}

/** Whether a run belongs into the list, as far as its line tells: who worked on it, only the server knows. */
const fits = (line: RunLine, filter: RunFilter): boolean => {
  const text = filter.text.toLowerCase();
  return !line.parent
    && (!filter.team || line.team === filter.team)
    && (!filter.state || line.state === filter.state)
    && (!filter.label || hasLabel(line, filter.label))
    && (!filter.cost || line.spent.usd >= Number(filter.cost))
    && (line.goal.toLowerCase().includes(text) || line.run.toLowerCase().includes(text));
};

export class RunsStore {
  readonly lines = signal<RunLine[] | undefined>(undefined);
  readonly problem = signal<Problem | undefined>(undefined);
  readonly next = signal<number | null>(null);
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly filter: RunFilter) {}

  open(): () => void {
    void this.load();
    const stop = follow({
      path: () => "/api/runs/events",
      hear: (events) => this.take(events.map((event) => JSON.parse(event.data) as RunLine)),
      refused: (problem) => { this.problem.value = problem; },
    });
    const stopWatching = isOnline.subscribe((online) => { if (online && this.lines.value) void this.load(); });
    return () => {
      clearTimeout(this.timer);
      stopWatching();
      stop();
    };
  }

  async load(before?: number): Promise<void> {
    const wanted = new URLSearchParams({ limit: String(PAGE) });
    for (const [name, value] of Object.entries(this.filter)) if (value) wanted.set(name, value);
    if (before !== undefined) wanted.set("before", String(before));
    try {
      const page = await get<RunPage>(`/api/runs?${wanted}`);
      const known = before === undefined ? [] : (this.lines.value ?? []);
      this.lines.value = [...known, ...page.runs];
      this.next.value = page.next;
      this.problem.value = undefined;
    } catch (error) {
      this.problem.value = error as Problem;
    }
  }

  private take(changed: RunLine[]): void {
    if (this.filter.worker) {
      this.timer ??= setTimeout(() => {
        this.timer = undefined;
        void this.load();
      }, RELOAD_AFTER);
      return;
    }
    const lines = new Map((this.lines.value ?? []).map((line) => [line.run, line]));
    for (const line of changed) {
      if (fits(line, this.filter)) lines.set(line.run, line);
      else lines.delete(line.run);
    }
    this.lines.value = [...lines.values()].sort((a, b) => b.started - a.started);
  }
}
