// What people decided: a line for each call, plan and question, with the verdict and how long it took.

import type { JSX } from "preact";
import { Ref } from "./chips.tsx";
import { seconds } from "./format.ts";
import { VERDICTS } from "./needs_you.tsx";
import type { RunContext } from "./run_context.ts";
import { type AskedQuestion, type Run, pendingCalls } from "./run_state.ts";

type Decision = { question: AskedQuestion; task: string; subject: string; arguments?: Record<string, unknown>; verdict: string; reason: string };

const LONGEST = 120;

export function Decisions({ run, context }: { run: Run; context: RunContext }): JSX.Element | null {
  const decisions = run.questions.filter((question) => question.answered !== undefined).flatMap(decisionsOf);
  if (!decisions.length) return null;
  return (
    <section aria-label="Decisions">
      <h3>Decisions <span class="quiet">{decisions.length}</span></h3>
      <ul class="notes">
        {decisions.map((decision) => <DecisionLine decision={decision} context={context} />)}
      </ul>
    </section>
  );
}

function DecisionLine({ decision, context }: { decision: Decision; context: RunContext }): JSX.Element {
  const { question, task, subject, verdict, reason } = decision;
  const values = shortArguments(decision.arguments ?? {});
  return (
    <li>
      <span class="mono">{seconds(question.answered!)}</span>
      <span>
        {task && <Ref context={context} id={task} />} {subject}{values && <> <code title={values.whole}>{values.short}</code></>}{" "}
        {VERDICTS[verdict] ?? verdict}{question.by && ` by ${question.by}`} after {seconds(question.answered! - question.asked)}
        {reason && `: ${reason}`}
      </span>
    </li>
  );
}

/** One for each call that has a verdict: those without are asked about in the next question. */
function decisionsOf(question: AskedQuestion): Decision[] {
  const [first, ...others] = pendingCalls(question);
  const { task, verdict, feedback: reason } = question;
  if (!first) return [{ question, task, subject: question.what, verdict, reason }];
  const verdicts = new Map(question.also.map((each) => [each.call, each]));
  verdicts.set(first.call, { call: first.call, verdict, feedback: reason });
  return [first, ...others].flatMap((call) => {
    const said = verdicts.get(call.call);
    // a call of a nested run names a task of that run: the task of this run is the one that asks
    const owner = question.question?.run ? task : call.task || task;
    const subject = call.tool || call.text || question.what;
    return said ? [{ question, task: owner, subject, arguments: call.arguments, verdict: said.verdict, reason: said.feedback ?? "" }] : [];
  });
}

/** Arguments in one line, cut where they are long. */
function shortArguments(values: Record<string, unknown>): { whole: string; short: string } | undefined {
  const parts = Object.entries(values).map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`);
  const whole = parts.join(", ");
  if (!whole) return undefined;
  return { whole, short: whole.length > LONGEST ? `${whole.slice(0, LONGEST)}…` : whole };
}
