// The labels of a run, each a way to all runs that have it.

import type { JSX } from "preact";
import { Link } from "./shell.tsx";

export function Labels({ labels }: { labels: Record<string, string> }): JSX.Element {
  return (
    <>
      {Object.entries(labels).map(([name, value]) => (
        <Link class="label" to={`/?label=${encodeURIComponent(`${name}:${value}`)}`} title={`All runs with ${name}: ${value}`}>{name}: {value}</Link>
      ))}
    </>
  );
}

/** Labels as they are typed, `name: value` with commas between; undefined where one has no colon or no name. */
export function parseLabels(text: string): Record<string, string> | undefined {
  const labels: Record<string, string> = {};
  for (const part of text.split(",").map((each) => each.trim()).filter(Boolean)) {
    const at = part.indexOf(":");
    const name = part.slice(0, Math.max(0, at)).trim();
    if (!name) return undefined;
    labels[name] = part.slice(at + 1).trim();
  }
  return labels;
}
