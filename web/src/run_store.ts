// One run, kept up to date: its entries as they come, the run they make, and the moment at which it is looked at.

import { computed, signal } from "@preact/signals";
import { type Problem, clockAhead, get, isOnline, runPath, serverNow } from "./api.ts";
import type { Entry } from "./events.ts";
import { type Example, exampleOf } from "./examples.ts";
import { asInterrupted, foldEntries, foldEntry } from "./fold.ts";
import { beginRun } from "./run_changes.ts";
import { type Run, openQuestion, planned } from "./run_state.ts";
import { follow } from "./stream.ts";

export type Forecast = {
  timed?: boolean;
  critical: number;
  serial: number;
  makespan: number;
  usd?: { about: number | null; budget?: number | null; grows?: string } | null;
};
export type RunInfo = {
  summary: { state: string; source: string };
  notice: string;
  now?: number;
  forecast?: Forecast | null;
};

/** Some words of a model as they come. */
type Words = { work: string; task: string; attempt: number; text: string; kind?: "answer" | "thought" };

/** Events after which the server knows more of a run than its entries say. */
const NEWS = new Set(["run.ended", "run.resumed", "run.released"]);

export class RunStore {
  readonly entries: Entry[] = [];
  /** Counts changes of the run, so that views follow it. */
  readonly changes = signal(0);
  /** The moment that is looked at, in seconds since the run began; undefined: now. */
  readonly moment = signal<number | undefined>(undefined);
  readonly clock = signal(0);
  readonly info = signal<RunInfo | undefined>(undefined);
  readonly problem = signal<Problem | undefined>(undefined);
  /** What the models of running tasks have written so far. */
  readonly words = signal<Record<string, string>>({});
  /** What they have thought so far. */
  readonly thoughts = signal<Record<string, string>>({});
  private live: Run;
  private frame = 0;
  private seen = 0;
  private stops: (() => void)[] = [];

  /** The example that this is, if it is none of the server's runs. */
  readonly example: Example | undefined;

  constructor(readonly name: string) {
    this.live = beginRun(name);
    this.example = exampleOf(name);
  }

  /** Whether no process carries the run, though it has not ended. */
  readonly isInterrupted = computed((): boolean => {
    void this.changes.value;
    return !this.live.ended && this.info.value?.summary.state === "interrupted";
  });

  /** The run as it is looked at. */
  readonly shown = computed((): Run => {
    const moment = this.moment.value;
    void this.changes.value;
    if (moment !== undefined) return foldEntries(this.name, this.entries, Math.max(1, this.lastBefore(moment)));
    return this.isInterrupted.value ? asInterrupted(this.name, this.entries) : this.live;
  });

  /** The run as it is now, whatever is looked at. */
  get latest(): Run {
    void this.changes.value;
    return this.live;
  }

  /** How many seconds the run has taken. */
  get end(): number {
    const run = this.latest;
    const isStill = run.ended || !run.start || this.isInterrupted.value;
    return isStill ? run.at : Math.max(run.at, this.clock.value - run.start);
  }

  /** How long a task takes by the forecast of the server, which knows earlier runs; undefined: it does not. */
  get usualSeconds(): number | undefined {
    const forecast = this.info.value?.forecast;
    const tasks = planned(this.latest).length;
    return forecast && forecast.timed !== false && tasks ? forecast.serial / tasks : undefined;
  }

  get now(): number {
    return this.moment.value ?? this.end;
  }

  lastBefore(moment: number): number {
    const start = this.entries[0]?.at ?? 0;
    return this.entries.findLast((entry) => entry.at - start <= moment)?.seq ?? 0;
  }

  /** Look at the run one entry earlier or later than now. */
  step(direction: 1 | -1): void {
    const start = this.entries[0]?.at ?? 0;
    const at = this.moment.value ?? this.live.at;
    const times = [...new Set(this.entries.map((entry) => entry.at - start))];
    const next = direction > 0 ? times.find((time) => time > at) : times.findLast((time) => time < at);
    if (next !== undefined) this.moment.value = next >= this.live.at ? undefined : next;
    else if (direction > 0) this.moment.value = undefined;
  }

  open(): () => void {
    if (this.example) {
      void this.replay(this.example.address);
      return () => {};
    }
    this.follow();
    void this.load();
    const timer = setInterval(() => {
      if (!this.live.ended) this.clock.value = serverNow();
    }, 250);
    this.stops.push(() => clearInterval(timer));
    this.stops.push(isOnline.subscribe((online) => { if (online && this.live.start) void this.load(); }));
    return () => { for (const stop of this.stops) stop(); };
  }

  /** Take in the entries of a run that comes with the page. */
  private async replay(address: string): Promise<void> {
    const entries = (await (await fetch(address)).json()) as Entry[];
    for (const entry of entries) this.take({ ...entry, run: this.name });
  }

  async load(): Promise<void> {
    if (this.example) return;
    try {
      const info = await get<RunInfo>(`${runPath(this.name)}?lean=true`);
      if (info.now !== undefined) clockAhead.value = info.now - Date.now() / 1000;
      this.info.value = info;
    } catch (error) {
      const problem = error as Problem;
      if (problem.status === 404) this.problem.value = problem;
    }
  }

  private follow(): void {
    const stop = follow({
      path: () => `${runPath(this.name)}/events?after=${this.seen}&lean=true&words=true`,
      hear: (events) => {
        for (const event of events) {
          if (event.name === "words" || event.name === "thoughts") this.hearWords(JSON.parse(event.data) as Words);
          else if (event.name !== "damaged") this.take(JSON.parse(event.data) as Entry);
        }
      },
      over: () => { void this.load(); },
      refused: (problem) => { this.problem.value = problem; },
    });
    this.stops.push(stop);
  }

  private take(entry: Entry): void {
    if (entry.seq !== this.seen + 1) return;
    const asked = openQuestion(this.live)?.number;
    this.seen = entry.seq;
    this.entries.push(entry);
    if (entry.event.type === "attempt.started") {
      this.words.value = { ...this.words.value, [entry.event.task]: "" };
      this.thoughts.value = { ...this.thoughts.value, [entry.event.task]: "" };
    }
    foldEntry(this.live, entry);
    const hasNews = NEWS.has(entry.event.type) || openQuestion(this.live)?.number !== asked;
    if (hasNews) void this.load();
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.changes.value += 1;
    });
  }

  private hearWords({ work, task, text, kind }: Words): void {
    const name = task || work;
    const told = kind === "thought" ? this.thoughts : this.words;
    told.value = { ...told.value, [name]: (told.value[name] ?? "") + text };
  }
}

/** The state of a run in a word, as the list has it too. */
export function runState(store: RunStore, run: Run): string {
  if (run.ended) return run.ended.ending;
  const isPast = store.moment.value !== undefined;
  if (openQuestion(run)) return "needs_input";
  if (!isPast && store.isInterrupted.value) return "interrupted";
  if (run.paused) return "paused";
  return run.tasks.size ? "running" : "planning";
}
