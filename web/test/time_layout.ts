// Reads `[{id, needs}]` as JSON, lays it out, and prints how many milliseconds that took: the median of five times.

import { readFileSync } from "node:fs";
import { type LayoutTask, layoutPlan } from "../src/layout.ts";

const tasks = JSON.parse(readFileSync(0, "utf8")) as LayoutTask[];
const times: number[] = [];
for (let round = 0; round < 5; round += 1) {
  const began = performance.now();
  layoutPlan(tasks, { width: 184, height: 54, gapX: 44, gapY: 14 });
  times.push(performance.now() - began);
}
process.stdout.write(String(times.sort((a, b) => a - b)[2]));
