// The fold of what a person is asked and says: plans, calls, effects in doubt, questions in words.

import type { Plan } from "./events.ts";
import type { Fold } from "./fold.ts";
import { dropRound, endWaits, settle, takePlan } from "./run_changes.ts";
import { type AskedQuestion, type Run, type Task, pendingCalls } from "./run_state.ts";

const inputRequested: Fold = (run, event, { at, task }) => {
  const question: AskedQuestion = {
    number: event.number, what: event.what, task: event.task ?? "", text: event.text ?? "", question: event.question,
    asked: at, verdict: "", feedback: "", also: [], by: "",
  };
  run.questions.push(question);
  if (!task) return;
  const ownDoubts = event.what === "effect" && event.question?.step ? pendingCalls(question) : [];
  for (const id of new Set([task.id, ...ownDoubts.map((call) => call.task!)])) {
    const asking = run.tasks.get(id);
    if (asking) waitForPerson(asking, at);
  }
};

function waitForPerson(task: Task, at: number): void {
  task.status = "asking";
  if (!task.waits.some((wait) => wait.kind === "person" && wait.ended === undefined)) {
    task.waits.push({ kind: "person", began: at });
  }
}

const inputAnswered: Fold = (run, event, { at }) => {
  const question = run.questions.find((each) => each.number === event.number);
  if (!question) return;
  question.verdict = event.verdict;
  question.feedback = event.feedback ?? "";
  question.also = event.also ?? [];
  question.by = event.by ?? "";
  question.answered = at;
  run.deadline += at - question.asked; // the time a person takes is not the run's
  const task = run.tasks.get(question.task);
  const isNested = Boolean(question.question?.run);
  if (task && question.what === "effect" && !isNested && question.question?.step) answerEffects(run, question, event, at);
  else if (task) answerTask(run, task, { what: question.what, isNested, ...event }, at);
  else if (question.what === "question") return; // the planner goes on with the answer
  else if (event.verdict === "approve") startPlan(run, at);
  else replacePlan(run, event.plan, at);
};

/** Each effect in doubt is a step that finished, a step that is made again, or a failed task. */
function answerEffects(run: Run, question: AskedQuestion, answer: Record<string, unknown>, at: number): void {
  const calls = pendingCalls(question);
  const verdicts = new Map(question.also.map((each) => [each.call, each]));
  verdicts.set(calls[0]!.call, { call: calls[0]!.call, verdict: question.verdict, result: answer.result });
  const failed = new Set<string>();
  const open = new Set<string>();
  for (const call of calls) {
    const task = run.tasks.get(call.task!);
    const verdict = verdicts.get(call.call);
    if (!task) continue;
    if (!verdict) open.add(task.id);
    else if (verdict.verdict === "fail") failed.add(task.id);
    else {
      task.openSteps.delete(call.step!);
      task.doubts.delete(call.step!);
    }
    if (verdict?.verdict !== "done") continue;
    for (const attempt of task.attempts) {
      for (const step of attempt.steps.filter((each) => each.step === call.step && each.ended === undefined)) {
        step.result = verdict.result;
        step.ended = at;
      }
    }
  }
  for (const id of new Set(calls.map((call) => call.task!))) {
    const task = run.tasks.get(id);
    if (!task) continue;
    endWaits(task, at);
    if (failed.has(id)) {
      task.ended = at;
      settle(run, task, "failed", at);
    } else if (open.has(id)) task.status = "judged";
    else {
      task.failure = task.failureBefore;
      task.status = "ready";
      task.ready = at;
    }
  }
}

function answerTask(run: Run, task: Task, answer: { [field: string]: unknown }, at: number): void {
  endWaits(task, at);
  if (answer.what === "effect" && answer.verdict !== "again" && !answer.isNested) task.ended = at;
  if (answer.isNested || answer.what !== "effect") {
    task.failure = task.failureBefore;
    task.status = "ready";
    task.ready = at;
  } else if (answer.verdict === "done") {
    task.result = answer.result;
    settle(run, task, "done", at);
  } else if (answer.verdict === "again") {
    task.doubts.clear();
    task.status = "ready";
    task.ready = at;
  } else {
    settle(run, task, "failed", at);
  }
}

/** Tasks of a plan that a person approved were held back until then. */
function startPlan(run: Run, at: number): void {
  for (const task of run.tasks.values()) if (task.status === "ready" && !task.attempts.length) task.ready = at;
}

function replacePlan(run: Run, plan: Plan | undefined, at: number): void {
  dropRound(run);
  if (plan) takePlan(run, plan, at);
}

export const PERSON_FOLDS: Record<string, Fold> = {
  "input.requested": inputRequested,
  "input.answered": inputAnswered,
};
