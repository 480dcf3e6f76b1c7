// What a new run that is made from this one would take over and what it would do again, before it is made.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Refs } from "./chips.tsx";
import { type Problem, post, runPath } from "./api.ts";
import { dollars, plural } from "./format.ts";
import type { RunContext } from "./run_context.ts";

type Preview = { reused: string[]; again: string[]; usd: number };
const MOST_NAMED = 12;

/** `again` are tasks whose results are not to be taken over. */
export function ReusePreview({ context, again }: { context: RunContext; again: string[] }): JSX.Element {
  const [preview, setPreview] = useState<Preview | undefined>(undefined);
  const [problem, setProblem] = useState("");
  const run = context.store.name;
  useEffect(() => {
    let isWanted = true;
    post<Preview>(`${runPath(run)}/fork/preview`, { again })
      .then((reply) => { if (isWanted) setPreview(reply); })
      .catch((error: Problem) => { if (isWanted) setProblem(error.message); });
    return () => { isWanted = false; };
  }, [run, again.join(" ")]);
  if (problem) return <p class="failure">{problem}</p>;
  if (!preview) return <p class="quiet">Looking what can be reused …</p>;
  if (!preview.again.length && !preview.reused.length) return <p class="quiet">A new run. There is no plan yet, so it is planned anew.</p>;
  const cost = preview.usd > 0 ? `, which cost ${dollars(Math.round(preview.usd * 1e6))} here` : "";
  return (
    <p class="reuse-preview">
      A new run: {plural(preview.reused.length, "result")} reused, {plural(preview.again.length, "task")} done again{cost}.
      {preview.again.length > 0 && preview.again.length <= MOST_NAMED && <> Again: <Refs context={context} ids={preview.again} /></>}
    </p>
  );
}
