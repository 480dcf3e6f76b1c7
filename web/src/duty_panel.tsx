// The inspector of what the supervisor did itself: planning, rewriting tasks, writing the answer.

import type { JSX } from "preact";
import { Ref } from "./chips.tsx";
import { count, dollars, seconds } from "./format.ts";
import { PromptView } from "./prompt_view.tsx";
import type { RunContext } from "./run_context.ts";
import type { Duty } from "./run_state.ts";
import { Icon } from "./states.tsx";

const WORDS: Record<Duty["duty"], string> = { plan: "Planning", refine: "Rewriting a task", answer: "Writing the answer" };

export function DutyPanel({ context, kind }: { context: RunContext; kind: "plan" | "answer" }): JSX.Element {
  const run = context.store.shown.value;
  const duties = run.duties.filter((duty) => duty.duty === kind);
  return (
    <div class="pn pn-task">
      <header>
        <div class="pn-crumb"><button class="ghost" title="Back to the run (Esc)" onClick={() => context.select("")}>← Run</button></div>
        <h2>{WORDS[kind]}</h2>
      </header>
      <section>
        {!duties.length && <p class="quiet">It has not begun.</p>}
        {duties.map((duty) => <DutyCard context={context} duty={duty} />)}
      </section>
    </div>
  );
}

function DutyCard({ context, duty }: { context: RunContext; duty: Duty }): JSX.Element {
  const why = duty.why === "first" ? "" : ` (${duty.why})`;
  return (
    <article class="attempt">
      <header>
        <Icon state={duty.ending} />
        <b>Try {duty.number}{why}</b>
        <span class="grow" />
        <span>{seconds((duty.ended ?? context.store.now) - duty.began)}</span>
        <span>{dollars(duty.used.micros)}</span>
      </header>
      {duty.tasks.length > 0 && <p class="pn-relations">added {duty.tasks.map((id) => <Ref context={context} id={id} />)}</p>}
      <ol class="steps">
        {duty.calls.map((call) => (
          <li class="is-model">
            <i /><span class="mono">model</span>
            <span class="steps-what">{call.model}, {count(call.input)} tokens in, {count(call.output)} out</span>
            <span>{seconds(call.seconds)}</span>
          </li>
        ))}
      </ol>
      {duty.failure && <p class="failure"><b>{duty.failure.kind}</b> {duty.failure.message}</p>}
      {duty.findings.map((finding) => <p class="failure"><b>{finding.place}</b> {finding.message}</p>)}
      {duty.prompts.map((prompt) => (
        <details><summary>What its model was told</summary><PromptView prompt={prompt} entries={context.store.entries} run={context.store.name} /></details>
      ))}
    </article>
  );
}
