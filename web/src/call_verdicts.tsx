// Calls that wait for a person: each with its arguments and a verdict of its own, sent in one answer.

import { useState } from "preact/hooks";
import type { JSX } from "preact";
import type { EarlierCall, PendingCall } from "./events.ts";
import { moment } from "./format.ts";
import type { CallVerdict } from "./run_state.ts";

type Choice = { verdict: string; label: string; hint?: string };
const CHOICES: Record<string, Choice[]> = {
  tool: [
    { verdict: "approve", label: "Approve" },
    { verdict: "reject", label: "Reject", hint: "Why not? The worker reads this." },
  ],
  effect: [
    { verdict: "done", label: "It was done", hint: "What did it return? Text or JSON." },
    { verdict: "again", label: "Do it again" },
    { verdict: "fail", label: "Give up" },
  ],
};

type Draft = { verdict: string; text: string };

/** Whether a verdict can be sent: what was done needs its result. */
const isWhole = (draft: Draft | undefined): boolean => Boolean(draft && (draft.verdict !== "done" || draft.text.trim()));

export function CallVerdicts({ what, calls, blocked, mayAnswer, send }: {
  what: string; calls: PendingCall[]; blocked: boolean; mayAnswer: boolean; send: (verdicts: CallVerdict[]) => void;
}): JSX.Element {
  const [drafts, setDrafts] = useState<Record<number, Draft>>({});
  const change = (call: number, draft: Draft): void => setDrafts({ ...drafts, [call]: draft });
  const isReady = calls.every((call) => isWhole(drafts[call.call]));
  return (
    <form class="ny-calls" onSubmit={(event) => {
      event.preventDefault();
      send(calls.map((call) => verdictOf(call, drafts[call.call]!)));
    }}>
      {calls.map((call, place) => (
        <fieldset key={call.call}>
          <legend>{calls.length > 1 && `${place + 1} of ${calls.length}: `}<code>{call.tool || call.text}</code></legend>
          <Circumstances call={call} what={what} />
          {mayAnswer && <Verdict call={call} choices={CHOICES[what]!} draft={drafts[call.call]} change={change} />}
        </fieldset>
      ))}
      {mayAnswer && <button class="primary" disabled={blocked || !isReady}>{calls.length > 1 ? "Send all verdicts" : "Send"}</button>}
    </form>
  );
}

function Verdict({ call, choices, draft, change }: {
  call: PendingCall; choices: Choice[]; draft: Draft | undefined; change: (call: number, draft: Draft) => void;
}): JSX.Element {
  const chosen = choices.find((choice) => choice.verdict === draft?.verdict);
  const text = draft?.text ?? "";
  return (
    <>
      <div class="ny-choices">
        {choices.map(({ verdict, label }) => (
          <label>
            <input type="radio" name={`verdict-${call.call}`} checked={verdict === draft?.verdict}
              onChange={() => change(call.call, { verdict, text })} /> {label}
          </label>
        ))}
      </div>
      {chosen?.hint && (
        <textarea rows={1} value={text} aria-label={chosen.hint} placeholder={chosen.hint}
          onInput={(event) => change(call.call, { verdict: chosen.verdict, text: event.currentTarget.value })} />
      )}
    </>
  );
}

function Circumstances({ call, what }: { call: PendingCall; what: string }): JSX.Element {
  return (
    <>
      <Arguments values={call.arguments ?? {}} />
      {what === "effect" && call.task && <p class="ny-because">Task {call.task}</p>}
      {what === "effect" && call.key && <p class="ny-because">Look it up by its idempotency key: <code>{call.key}</code></p>}
      {what === "tool" && <Because because={call.because} values={call.arguments} earlier={call.earlier} />}
    </>
  );
}

/** Why a call is asked about, and the call that it may repeat. */
export function Because({ because, values, earlier }: {
  because?: string; values?: Record<string, unknown>; earlier?: EarlierCall | null;
}): JSX.Element {
  return (
    <>
      {because === "tainted" && <p class="ny-because">The worker has seen text from outside.</p>}
      {because === "repeated" && <p class="ny-because">{repeatWords(values ?? {}, earlier)}</p>}
      {earlier && <Earlier call={earlier} />}
    </>
  );
}

function repeatWords(values: Record<string, unknown>, earlier?: EarlierCall | null): string {
  const isUnknown = earlier?.happened === false;
  // journals of earlier versions leave out an equal call of the same attempt
  const isEqual = !earlier || canonical(earlier.arguments ?? {}) === canonical(values);
  if (isEqual) return isUnknown ? "The same call may have been made before: nobody knows." : "The same call was made before.";
  return `An earlier call of the same tool ${isUnknown ? "may have been made: nobody knows" : "was made"}.`;
}

/** JSON in which the order of the fields does not matter. */
const canonical = (value: unknown): string =>
  JSON.stringify(value, (_name, part: unknown) =>
    part && typeof part === "object" && !Array.isArray(part) ? Object.fromEntries(Object.entries(part).sort(byName)) : part);
const byName = ([one]: [string, unknown], [other]: [string, unknown]): number => (one < other ? -1 : 1);

function Earlier({ call }: { call: EarlierCall }): JSX.Element {
  const place = [call.task && `task ${call.task}`, call.run && `run ${call.run}`, call.at && moment(call.at)].filter(Boolean);
  return (
    <p class="ny-because">
      Earlier call: <code>{call.tool} {JSON.stringify(call.arguments ?? {})}</code>
      {place.length > 0 && ` (${place.join(", ")})`}
      {call.happened === false ? ", and nobody knows whether it happened" : <>, which returned <code>{JSON.stringify(call.result ?? null)}</code></>}
    </p>
  );
}

function verdictOf(call: PendingCall, { verdict, text }: Draft): CallVerdict {
  if (verdict === "done") return { call: call.call, verdict, result: asData(text) };
  return { call: call.call, verdict, feedback: verdict === "reject" ? text : "" };
}

/** JSON where the text is JSON, else the text. */
function asData(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

export function Arguments({ values }: { values: Record<string, unknown> }): JSX.Element {
  const shown = (value: unknown): string => {
    if (Array.isArray(value) && value.every((part) => typeof part !== "object")) return value.join(", ");
    return typeof value === "string" ? value : JSON.stringify(value);
  };
  return (
    <dl class="arguments">
      {Object.entries(values).map(([name, value]) => <><dt>{name}</dt><dd>{shown(value)}</dd></>)}
    </dl>
  );
}
