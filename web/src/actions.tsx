// Doing something on the server: while it is under way nothing else can be pressed, and a refusal is shown in place.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type Problem, isOnline } from "./api.ts";

export type Action = {
  isBusy: boolean;
  problem?: Problem;
  run: (work: () => Promise<unknown>) => Promise<void>;
  clear: () => void;
};

export function useAction(): Action {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | undefined>(undefined);
  const run = async (work: () => Promise<unknown>): Promise<void> => {
    setBusy(true);
    setProblem(undefined);
    try {
      await work();
    } catch (error) {
      setProblem(error as Problem);
    }
    setBusy(false);
  };
  return { isBusy, problem, run, clear: () => setProblem(undefined) };
}

/** The server's own sentence, under what was pressed. */
export function Refusal({ action }: { action: Action }): JSX.Element | null {
  if (!action.problem) return null;
  const { message, faults } = action.problem;
  return (
    <div class="refusal" role="alert">
      <p>{message}</p>
      {faults.length > 0 && <ul>{faults.map((fault) => <li><code>{fault.place}</code> {fault.message}</li>)}</ul>}
    </div>
  );
}

export const isBlocked = (action: Action): boolean => action.isBusy || !isOnline.value;
