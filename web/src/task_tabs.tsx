// The tabs of a task.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Ref, citeIn } from "./chips.tsx";
import type { Failure } from "./events.ts";
import { dollars, seconds } from "./format.ts";
import { Arguments } from "./call_verdicts.tsx";
import { PromptView } from "./prompt_view.tsx";
import { runAddress } from "./route.ts";
import type { RunContext } from "./run_context.ts";
import { CALL_STEPS, type Attempt, type Note, type Step, type Task, itemsOf } from "./run_state.ts";
import { Link } from "./shell.tsx";
import { Icon, stateOf, wordOf } from "./states.tsx";
import { Diff } from "./text.tsx";
import { Thoughts } from "./thoughts.tsx";
import { Value, isLeft } from "./value_view.tsx";

type Props = { context: RunContext; task: Task };
const QUIET_STEPS = new Set(["memory", "remember", "summary"]);

export const callsOf = (task: Task): Step[] =>
  task.attempts.flatMap((attempt) => attempt.steps).filter((step) => CALL_STEPS.has(step.kind));

function FailureText({ failure }: { failure: Failure }): JSX.Element {
  return <p class="failure"><b>{failure.kind}</b> {failure.message}</p>;
}

export function ResultTab({ context, task }: Props): JSX.Element {
  const run = context.store.shown.value;
  const items = task.forEach ? itemsOf(run, task) : [];
  const words = context.store.words.value[task.id];
  const isWritten = task.result !== undefined && task.result !== null;
  const step = task.attempts.at(-1)?.steps.at(-1);
  const doing = step?.kind === "model" ? "The model is writing." : `Calling ${step?.name ?? "the worker"}.`;
  return (
    <section>
      {task.failure && task.status !== "done" && task.status !== "asking" && <FailureText failure={task.failure} />}
      {task.status === "skipped" && (
        <p class="failure">Skipped: {task.because ? <>it needs <Ref context={context} id={task.because} />, which did not deliver.</> : task.skipped}</p>
      )}
      {task.reused && <p>Reused from <Link to={runAddress(task.reused.run)}>{task.reused.run}</Link>, task {task.reused.task}.</p>}
      {!isWritten && task.status === "running" && <Thoughts text={context.store.thoughts.value[task.id]} />}
      {isWritten
        ? <Value value={task.result} run={run.run} cite={citeIn(context)} />
        : task.status === "running" && <p class="quiet">{words || doing}</p>}
      {items.length > 0 && (
        <ul class="pn-items">
          {items.map((item) => (
            <li><button class="ghost" onClick={() => context.select(item.id)}><Icon state={stateOf(item)} /><b class="mono">{item.id}</b> {wordOf(stateOf(item))}</button></li>
          ))}
        </ul>
      )}
      <h4>Asked for</h4>
      <p class="pn-instruction">{task.instruction}</p>
      {task.accept.length > 0 && <p class="quiet">Its result must pass: {task.accept.join(", ")}</p>}
    </section>
  );
}

export function AttemptsTab({ context, task }: Props): JSX.Element {
  if (!task.attempts.length) return <section><p class="quiet">It has not begun.</p></section>;
  return (
    <section>
      {task.attempts.map((attempt, index) => (
        <AttemptCard attempt={attempt} before={task.attempts[index - 1]} now={context.store.now}
          notes={context.store.shown.value.notes.filter((note) => note.task === task.id && note.attempt === attempt.attempt)} />
      ))}
    </section>
  );
}

function AttemptCard({ attempt, before, now, notes }: { attempt: Attempt; before?: Attempt; now: number; notes: Note[] }): JSX.Element {
  const isRewritten = before !== undefined && before.instruction !== attempt.instruction;
  const isOther = before !== undefined && before.worker !== attempt.worker;
  const isGoingOn = before?.attempt === attempt.attempt;
  const shown = attempt.steps.filter((step) => !QUIET_STEPS.has(step.kind));
  return (
    <article class="attempt">
      <header>
        <Icon state={attempt.ending} />
        <b>Attempt {attempt.attempt}</b>
        <span>{attempt.worker}{isOther && " steps in"}{isGoingOn && ", goes on"}</span>
        <span class="grow" />
        <span>{seconds((attempt.ended ?? now) - attempt.began)}</span>
        <span>{dollars(attempt.used.micros)}</span>
      </header>
      {isRewritten && <><h4>What the supervisor changed</h4><Diff before={before.instruction} after={attempt.instruction} /></>}
      <ol class="steps">{shown.map((step) => <StepLine step={step} />)}</ol>
      {notes.map((note) => <CheckVerdict note={note} />)}
      {attempt.failure && <FailureText failure={attempt.failure} />}
      {attempt.nested.map((run) => <p><Link to={runAddress(run)} class="text-link">⤵ open the run of its team</Link></p>)}
    </article>
  );
}

/** What checks and reviewers said of a result. */
function CheckVerdict({ note: { fact } }: { note: Note }): JSX.Element | null {
  if (fact?.type === "result_accepted") {
    return <p class="verdict is-good"><Icon state="done" /><span>accepted by <b>{fact.checks?.join(", ")}</b>{fact.remarks?.map((remark) => <> · {remark}</>)}</span></p>;
  }
  if (fact?.type !== "result_refused") return null;
  const after = fact.sent_back ? "sent back to the worker" : "the attempt has failed";
  return (
    <p class="verdict">
      <Icon state="failed" />
      <span>
        {fact.refusals?.map((refusal) => <>not accepted by <b>{refusal.check}</b>: {refusal.problems.join("; ")} · </>)}{after}
      </span>
    </p>
  );
}

function StepLine({ step }: { step: Step }): JSX.Element {
  const classes = [step.kind === "model" ? "is-model" : "is-tool", step.good ? "" : "is-failed"].join(" ");
  return (
    <li class={classes}>
      <i />
      <span class="mono">{step.name}</span>
      <span class="steps-what">{stepText(step)}</span>
      <span>{step.ended === undefined ? "…" : seconds(step.ended - step.began)}</span>
    </li>
  );
}

function stepText(step: Step): string {
  const result = step.result as { text?: string; calls?: { name: string }[]; error?: string; value?: unknown } | undefined;
  if (isLeft(step.result)) return `${Math.ceil(step.result.bytes / 1024)} kB`;
  if (result?.error) return result.error;
  if (step.kind === "model") return result?.text || (result?.calls ?? []).map((call) => `→ ${call.name}`).join(" ");
  const value = result?.value ?? result;
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  return text === "{}" ? "" : text.slice(0, 200);
}

export function CallsTab({ context, task }: Props): JSX.Element {
  const calls = callsOf(task);
  if (!calls.length) return <section><p class="quiet">No tool was called.</p></section>;
  return <section>{calls.map((step) => <CallCard step={step} run={context.store.name} isOpen={calls.length < 5} />)}</section>;
}

function CallCard({ step, run, isOpen }: { step: Step; run: string; isOpen: boolean }): JSX.Element {
  const state = step.ended === undefined ? "running" : step.good ? "done" : "failed";
  const given = step.arguments;
  const isFields = typeof given === "object" && given !== null && !Array.isArray(given);
  return (
    <details open={isOpen} class={`call ${step.good ? "" : "is-failed"}`}>
      <summary>
        <Icon state={state} /><b class="mono">{step.name}</b>
        <span class={`effect is-${step.effect}`}>{step.effect === "effect" ? "acts" : step.effect}</span>
        <span class="grow" />{step.ended === undefined ? "…" : seconds(step.ended - step.began)}
      </summary>
      {isFields && <Arguments values={given as Record<string, unknown>} />}
      {!isFields && given !== undefined && <pre tabIndex={0}>{JSON.stringify(given)}</pre>}
      {step.result !== undefined && <Value value={step.result} run={run} />}
    </details>
  );
}

export function PromptTab({ context, task }: Props): JSX.Element {
  const prompts = task.attempts.flatMap((attempt) => attempt.prompts.map((prompt) => ({ attempt, prompt })));
  const [chosen, setChosen] = useState(-1);
  if (!prompts.length) return <section><p class="quiet">No model was asked.</p></section>;
  const at = chosen < 0 || chosen >= prompts.length ? prompts.length - 1 : chosen;
  return (
    <section>
      {prompts.length > 1 && (
        <select aria-label="Prompt" value={at} onChange={(event) => setChosen(Number(event.currentTarget.value))}>
          {prompts.map(({ attempt }, index) => <option value={index}>attempt {attempt.attempt}, {attempt.worker}</option>)}
        </select>
      )}
      <PromptView prompt={prompts[at]!.prompt} entries={context.store.entries} run={context.store.name} />
    </section>
  );
}

export function EventsTab({ context, task }: Props): JSX.Element {
  const run = context.store.shown.value;
  const entries = context.store.entries.filter((entry) => entry.event.task === task.id && entry.seq <= run.seq);
  return (
    <section>
      <ol class="events">
        {entries.map((entry) => (
          <li>
            <details>
              <summary><span class="mono">{entry.seq}</span><span class="mono">{seconds(entry.at - run.start)}</span><b>{entry.event.type}</b></summary>
              <pre tabIndex={0}>{JSON.stringify(entry.event, null, 2).slice(0, 20_000)}</pre>
            </details>
          </li>
        ))}
      </ol>
    </section>
  );
}
