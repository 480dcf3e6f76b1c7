// That a cap ended a run: which one, how much of it was used, and what was wanted of it.

import type { JSX } from "preact";
import type { CapReached } from "./events.ts";
import { dollars, plural, seconds } from "./format.ts";
import type { Run } from "./run_state.ts";

function quantity({ cap }: CapReached, value: number): string {
  if (cap === "usd") return dollars(Math.round(value * 1e6));
  if (cap === "time") return seconds(value);
  return plural(value, cap.replace(/s$/, ""), value.toLocaleString("en"));
}

export function describeCap(cap: CapReached): string {
  const parts = [`${quantity(cap, cap.used)} used`];
  if (cap.kept) parts.push(`${quantity(cap, cap.kept)} kept for the answer`);
  if (cap.needed) parts.push(`${quantity(cap, cap.needed)} needed for the next call`);
  return `the cap of ${quantity(cap, cap.limit)}: ${parts.join(", ")}`;
}

const REASONS: Record<string, string> = {
  budget: "The budget ended this run",
  deadline: "The time ran out",
  overspent: "It spent more than it may",
};

export function CapLine({ run }: { run: Run }): JSX.Element | null {
  const reason = REASONS[run.ended?.reason ?? ""];
  if (!reason) return null;
  return <p class="rh-cap">{reason}{run.ended!.cap && `: ${describeCap(run.ended!.cap)}`}.</p>;
}
