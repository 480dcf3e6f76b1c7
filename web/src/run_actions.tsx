// What can be done about the whole run: pause, cancel, resume; after its end retry, fork, delete.

import type { JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Refusal, isBlocked, useAction } from "./actions.tsx";
import { mayAct, mayDelete, post, remove, runPath } from "./api.ts";
import { ReusePreview } from "./reuse_preview.tsx";
import { go, runAddress } from "./route.ts";
import type { RunContext } from "./run_context.ts";
import { type Run, isLost, planned } from "./run_state.ts";

/** What is asked about before it is done. */
type Asked = "cancel" | "delete" | "retry" | "fork";

export function RunActions({ context, state }: { context: RunContext; state: string }): JSX.Element | null {
  const run = context.store.latest;
  const action = useAction();
  const [asked, setAsked] = useState<Asked | undefined>(undefined);
  if (!mayAct() || !run.start || run.parent || context.store.example) return null;
  const base = runPath(run.run);
  const blocked = isBlocked(action);
  const tell = (verb: string): Promise<void> => action.run(async () => { await post(`${base}/${verb}`); await context.store.load(); });
  const begin = (verb: string): Promise<void> =>
    action.run(async () => go(runAddress((await post<{ run: string }>(`${base}/${verb}`)).run)));
  const toggle = (wanted: Asked): void => setAsked(asked === wanted ? undefined : wanted);
  const drop = (): Promise<void> => action.run(async () => { await remove(base); go("/", { replace: true }); });
  const hasLost = planned(run).some(isLost) || run.ended?.gaps.some((gap) => gap.status === "failed");
  return (
    <div class="rh-acts" onKeyDown={(event) => { if (event.key === "Escape") setAsked(undefined); }}>
      <div class="row">
        {state === "interrupted" && <button class="primary" disabled={blocked} onClick={() => tell("resume")}>Resume</button>}
        {!run.ended && state !== "interrupted" && (
          <button id="pause" disabled={blocked} onClick={() => tell(run.paused ? "resume" : "pause")}>{run.paused ? "Resume" : "Pause"}</button>
        )}
        {!run.ended && (
          <AskOnce id="cancel" word="Cancel" hint="x" isAsked={asked === "cancel"} disabled={blocked || run.cancelled}
            setAsked={(isAsked) => setAsked(isAsked ? "cancel" : undefined)} act={() => tell("cancel")} />
        )}
        {run.ended && hasLost && (
          <button class="primary" aria-expanded={asked === "retry"} disabled={blocked} onClick={() => toggle("retry")}>Retry what failed</button>
        )}
        {run.ended && <button id="fork" aria-expanded={asked === "fork"} disabled={blocked} onClick={() => toggle("fork")}>Fork</button>}
        {run.ended && mayDelete() && (
          <AskOnce word="Delete" isAsked={asked === "delete"} disabled={blocked}
            setAsked={(isAsked) => setAsked(isAsked ? "delete" : undefined)} act={drop} />
        )}
      </div>
      {(asked === "retry" || asked === "fork") && (
        <Confirm key={asked} context={context} run={run} verb={asked} blocked={blocked} act={() => begin(asked)} close={() => setAsked(undefined)} />
      )}
      <Refusal action={action} />
    </div>
  );
}

type AskOnceProps = {
  id?: string; word: string; hint?: string; isAsked: boolean; disabled: boolean; setAsked: (isAsked: boolean) => void; act: () => Promise<void>;
};

/** A button that does what cannot be undone only when it is pressed twice. */
function AskOnce({ id, word, hint, isAsked, disabled, setAsked, act }: AskOnceProps): JSX.Element {
  return (
    <button id={id} class="danger" disabled={disabled} onBlur={() => { if (isAsked) setAsked(false); }}
      onClick={() => (isAsked ? void act() : setAsked(true))}>
      {isAsked ? `Really ${word.toLowerCase()}?` : word}{hint && <> <kbd>{hint}</kbd></>}
    </button>
  );
}

type ConfirmProps = { context: RunContext; run: Run; verb: "retry" | "fork"; blocked: boolean; act: () => Promise<void>; close: () => void };

function Confirm({ context, run, verb, blocked, act, close }: ConfirmProps): JSX.Element {
  const confirm = useRef<HTMLButtonElement>(null);
  useLayoutEffect(() => confirm.current?.focus(), []);
  const isPlannedAnew = verb === "retry" && run.unserved.length > 0;
  return (
    <div class="rh-confirm">
      {isPlannedAnew
        ? <p class="reuse-preview">A new run. Parts of the request were left out of the plan, so it is planned anew; results are reused where tasks are the same.</p>
        : <ReusePreview context={context} again={[]} />}
      <div class="row">
        <button onClick={close}>Back</button>
        <button class="primary" ref={confirm} disabled={blocked} onClick={act}>{verb === "retry" ? "Retry" : "Fork"}</button>
      </div>
    </div>
  );
}
