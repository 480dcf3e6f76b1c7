// What a person can do about one task. In a run under way a task is skipped, given away or stopped in place; after its
// end the same makes a new run that takes over what was finished.

import { useState } from "preact/hooks";
import type { JSX } from "preact";
import { Refusal, isBlocked, useAction } from "./actions.tsx";
import { mayAct, post, runPath } from "./api.ts";
import { ReusePreview } from "./reuse_preview.tsx";
import { go, runAddress } from "./route.ts";
import type { RunContext } from "./run_context.ts";
import { SETTLED, type Task } from "./run_state.ts";

type Wanted = "retry" | "fork" | "reassign" | "skip" | "stop";
const WORDS: Record<Wanted, string> = {
  retry: "Retry", fork: "Fork from here", reassign: "Give to …", skip: "Skip", stop: "Stop attempt",
};

export function TaskActions({ context, task }: { context: RunContext; task: Task }): JSX.Element | null {
  const run = context.store.latest;
  const action = useAction();
  const [wanted, setWanted] = useState<Wanted | undefined>(undefined);
  const [worker, setWorker] = useState("");
  if (!mayAct() || context.store.example || context.store.moment.value !== undefined || task.parent !== undefined) return null;
  const isOpen = !run.ended;
  const hasBegun = task.attempts.length > 0;
  const isSettled = SETTLED.has(task.status);
  const inPlace = isOpen && !isSettled;
  const choices: Wanted[] = inPlace
    ? [...(task.status === "running" ? (["stop"] as const) : []), ...(hasBegun ? [] : (["reassign"] as const)), "skip"]
    : ["retry", "fork", "reassign", "skip"];
  const send = (): Promise<void> =>
    action.run(async () => {
      const base = runPath(run.run);
      const at = `${base}/tasks/${encodeURIComponent(task.id)}`;
      const place = inPlace ? { in_place: true } : {};
      const calls: Record<Wanted, () => Promise<{ run?: string }>> = {
        retry: () => post(`${base}/retry`, { tasks: [task.id] }),
        fork: () => post(`${base}/fork`, { again: [task.id] }),
        reassign: () => post(`${at}/reassign`, { worker, ...place }),
        skip: () => post(`${at}/skip`, place),
        stop: () => post(`${at}/stop`),
      };
      const created = await calls[wanted!]();
      setWanted(undefined);
      if (!inPlace && created?.run) go(runAddress(created.run));
    });
  const workers = [...run.agents.keys()].filter((name) => name !== task.worker);
  return (
    <div class="pn-acts">
      <div class="row">
        {choices.map((choice) => (
          <button class="small" aria-expanded={wanted === choice} disabled={isBlocked(action)}
            onClick={() => setWanted(wanted === choice ? undefined : choice)}>{WORDS[choice]}</button>
        ))}
      </div>
      {wanted && (
        <div class="pn-confirm">
          {wanted === "reassign" && (
            <select aria-label="Worker" value={worker} onChange={(event) => setWorker(event.currentTarget.value)}>
              <option value="">choose a worker</option>
              {workers.map((name) => <option>{name}</option>)}
            </select>
          )}
          {inPlace ? <span class="quiet">In this run, which goes on.</span> : <ReusePreview context={context} again={[task.id]} />}
          {wanted === "skip" && !inPlace && <span class="quiet">Without {task.id} itself.</span>}
          <button class="primary small" disabled={isBlocked(action) || (wanted === "reassign" && !worker)} onClick={send}>
            {WORDS[wanted].replace(" …", "")}
          </button>
        </div>
      )}
      <Refusal action={action} />
    </div>
  );
}
