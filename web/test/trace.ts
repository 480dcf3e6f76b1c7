// A run in the shape of `runtime/trace.py`, with every default written out, for the comparison of the two folds.

import type { Amount } from "../src/events.ts";
import { criticalPath } from "../src/run_view.ts";
import type { Attempt, Duty, Prompt, Run, Step, Task } from "../src/run_state.ts";

const seconds = (work: { began: number; ended?: number }): number | null =>
  work.ended === undefined ? null : work.ended - work.began;

const prompt = (each: Prompt) => ({
  model: each.model, messages: each.messages, tools: each.tools, first_in: each.firstIn,
});

const step = (each: Step) => ({
  step: each.step, name: each.name, effect: each.effect, began: each.began, kind: each.kind, call: each.call,
  seconds: seconds(each), arguments: each.arguments ?? null, result: each.result ?? null, good: each.good,
  used: each.used,
});

const attempt = (each: Attempt) => ({
  attempt: each.attempt, worker: each.worker, instruction: each.instruction, began: each.began, seconds: seconds(each),
  ending: each.ending, failure: each.failure ?? null, prompts: each.prompts.map(prompt), steps: each.steps.map(step),
  used: each.used, nested: each.nested,
});

const duty = (each: Duty) => ({
  duty: each.duty, number: each.number, began: each.began, seconds: seconds(each), ending: each.ending, why: each.why,
  task: each.task, failure: each.failure ?? null, findings: each.findings, tasks: each.tasks,
  instruction: each.instruction, prompts: each.prompts.map(prompt), calls: each.calls, used: each.used,
});

const task = (each: Task) => ({
  id: each.id, title: each.title, instruction: each.planned, worker: each.worker,
  after: each.needs.map((need) => need.task), status: each.status,
  began: each.began ?? null, ended: each.ended ?? null, attempts: each.attempts.map(attempt),
  refinements: each.refinements, retries: each.retries, reused: each.reused ?? null, failure: each.failure ?? null,
  result: each.result ?? null, used: each.used,
});

function answerOf(run: Run): unknown {
  if (!run.sections.length) return run.answer ?? null;
  return [run.answer, ...run.sections.map((section) => section.text)].join("\n\n");
}

export function traceOf(run: Run): Record<string, unknown> {
  const tasks = [...run.tasks.values()];
  const attempts = [...tasks, ...run.dropped].flatMap((each) => each.attempts);
  const serial = [...run.duties, ...attempts].reduce((sum, work) => sum + (seconds(work) ?? 0), 0);
  return {
    run: run.run, goal: run.goal, began: run.start, seconds: run.at, serial, ending: run.ended?.ending ?? "",
    reason: run.ended?.reason ?? "", cap: run.ended?.cap ?? null, combine: run.combine, answer: answerOf(run), used: run.spent satisfies Amount,
    lost: run.lost satisfies Amount,
    critical_path: criticalPath(run), tasks: tasks.map(task), supervision: run.duties.map(duty),
    questions: run.questions, interruptions: run.interruptions, notes: run.notes,
    dropped: run.dropped.map(task), ...(run.ended ? { gaps: run.ended.gaps } : {}),
  };
}
