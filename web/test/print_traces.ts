// Reads `{run: [entries]}` as JSON and prints, for each run, its trace after every tenth entry and after the last.

import { readFileSync } from "node:fs";
import type { Entry } from "../src/events.ts";
import { foldEntry } from "../src/fold.ts";
import { beginRun } from "../src/run_changes.ts";
import { traceOf } from "./trace.ts";

const histories = JSON.parse(readFileSync(0, "utf8")) as Record<string, Entry[]>;
const traces: Record<string, Record<number, unknown>> = {};
for (const [name, entries] of Object.entries(histories)) {
  const run = beginRun(name);
  const kept: Record<number, unknown> = {};
  for (const entry of entries) {
    foldEntry(run, entry);
    if (entry.seq % 10 === 0 || entry === entries.at(-1)) kept[entry.seq] = structuredClone(traceOf(run));
  }
  traces[name] = kept;
}
process.stdout.write(JSON.stringify(traces));
