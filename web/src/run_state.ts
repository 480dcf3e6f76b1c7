// A run as the page shows it. `fold.ts` makes it from the entries; times are seconds since the run began.

import type { Agent, Amount, Budget, CapReached, Failure, Finding, Gap, Message, Need, NoteFact, PendingCall, Question } from "./events.ts";

export type WorkEnding = "under way" | "succeeded" | "failed" | "stopped" | "asked";
export type Status =
  | "waiting"
  | "ready"
  | "running"
  | "judged"
  | "refining"
  | "backing off"
  | "expanded"
  | "asking"
  | "done"
  | "failed"
  | "skipped"
  | "unfinished"
  | "dropped";

export type Prompt = { model: string; messages: Message[]; tools: string[]; firstIn: number; seq: number };

/** A tool call that a model asked for. */
export type WantedCall = { id: string; name: string; arguments: unknown };

/** The kinds of steps that are shown as calls: of tools, and of runs that do the work of an attempt. */
export const CALL_STEPS = new Set(["tool", "subteam", "worker"]);

export type Step = {
  step: number;
  name: string;
  kind: string;
  effect: string;
  began: number;
  ended?: number;
  /** The id of the tool call in the reply of the model; empty: no model asked for it. */
  call: string;
  arguments?: unknown;
  result?: unknown;
  good: boolean;
  used: Amount;
  /** The entry that has the result. */
  seq?: number;
};

export type Attempt = {
  attempt: number;
  worker: string;
  instruction: string;
  began: number;
  ended?: number;
  ending: WorkEnding;
  failure?: Failure;
  prompts: Prompt[];
  steps: Step[];
  used: Amount;
  /** Runs of teams that do its work. */
  nested: string[];
};

/** One call of the supervisor's model. */
export type ModelCall = {
  model: string;
  began: number;
  seconds: number;
  input: number;
  output: number;
  used: Amount;
};

export type Duty = {
  duty: "plan" | "refine" | "answer";
  number: number;
  task: string;
  why: string;
  began: number;
  ended?: number;
  ending: WorkEnding;
  failure?: Failure;
  findings: Finding[];
  tasks: string[];
  instruction: string;
  prompts: Prompt[];
  calls: ModelCall[];
  used: Amount;
  reserved: Amount;
  /** What is charged if it is cut off; undefined: what is reserved. */
  expected?: Amount;
};

/** A stretch in which a task waits: for its next try, for its rewriting, for a person. */
export type Wait = { kind: "backoff" | "refine" | "person"; began: number; ended?: number };

/** A step that is under way; `expected` is charged if it is cut off. */
export type OpenStep = { reserved: Amount; expected: Amount; effect: string; kind: string; resumable: boolean };

export type Task = {
  id: string;
  title: string;
  /** The title of the plan; empty: it has none, and `title` are the first words of the instruction. */
  givenTitle: string;
  instruction: string;
  /** As it was planned, before the supervisor rewrote it. */
  planned: string;
  worker: string;
  needs: { task: string; need: Need }[];
  quorum: number;
  forEach: string;
  accept: string[];
  status: Status;
  order: number;
  round: number;
  /** The `for_each` task that this is an item of. */
  parent?: string;
  /** How many items a `for_each` task has. */
  items?: number;
  ready?: number;
  began?: number;
  ended?: number;
  attempts: Attempt[];
  refinements: string[];
  retries: { at: number; wait: number; worker: string }[];
  waits: Wait[];
  failure?: Failure;
  skipped?: string;
  because?: string;
  reused?: { run: string; task: string };
  result?: unknown;
  /** The entry that has the result. */
  resultSeq?: number;
  used: Amount;
  reserved: Amount;
  /** What is charged if its attempt is cut off before its first step; undefined: what is reserved. */
  expected?: Amount;
  openSteps: Map<number, OpenStep>;
  /** Effects in doubt by their step, also of earlier attempts, and whether their tool can look them up. */
  doubts: Map<number, boolean>;
  /** How often an attempt began with effects that their tools were to look up. */
  looks: number;
  /** What failed before the attempt under way. */
  failureBefore?: Failure;
  /** What is reserved for nested runs of a crashed attempt until it is resumed, by step. */
  carried: Map<number, Amount>;
  wantedCalls: WantedCall[];
};

export type CallVerdict = { call: number; verdict: string; feedback?: string; result?: unknown };

export type AskedQuestion = {
  number: number;
  what: string;
  task: string;
  text: string;
  question?: Question;
  asked: number;
  verdict: string;
  feedback: string;
  answered?: number;
  /** Verdicts on the other calls that the question names. */
  also: CallVerdict[];
  by: string;
};

export type Note = { at: number; text: string; task: string; attempt: number; fact?: NoteFact };
/** A time in which no process drove the run: from the last entry before it, as far as the entries tell. */
export type Interruption = { last: number; resumed: number; cause: "asked" | "released" | "lost" };
export type AnswerSection = { kind: string; text: string };
export type Statement = { kind: string; text: string; origin?: string; conflict?: string; sentence?: string };

export type Run = {
  run: string;
  team: string;
  goal: string;
  /** When it began, in seconds since 1970. */
  start: number;
  /** The time of the last entry. */
  at: number;
  seq: number;
  deadline: number;
  agents: Map<string, Agent>;
  budget: Budget;
  tasks: Map<string, Task>;
  /** Tasks of plans that a person rejected or edited. */
  dropped: Task[];
  duties: Duty[];
  questions: AskedQuestion[];
  notes: Note[];
  warnings: Finding[];
  combine: string;
  answer?: unknown;
  sections: AnswerSection[];
  statements: Statement[];
  ended?: { ending: string; reason: string; gaps: Gap[]; cap?: CapReached | null };
  paused: boolean;
  cancelled: boolean;
  /** The process stopped in an orderly way and has not resumed the run. */
  released: boolean;
  spent: Amount;
  /** The part of `spent` that is an estimate, for calls whose outcome is not known. */
  lost: Amount;
  /** What is reserved for nested runs whose attempt was stopped, until they have ended. */
  stopping: Map<string, Amount>;
  source: string;
  parent: string;
  unserved: string[];
  interruptions: Interruption[];
  labels: Record<string, string>;
  round: number;
  planRedo: boolean;
  openDuties: Map<string, Duty>;
  /** The tasks that need a task. */
  readers: Map<string, Set<string>>;
};

export const SETTLED: ReadonlySet<Status> = new Set<Status>(["done", "failed", "skipped"]);

/** Whether a task came to nothing. */
export const isLost = (task: Task): boolean =>
  task.status === "failed" || task.status === "skipped" || task.status === "unfinished";

export const openQuestion = (run: Run): AskedQuestion | undefined =>
  run.ended ? undefined : run.questions.find((question) => !question.verdict);

/** The tasks of the plan: items of a `for_each` belong to their task. */
export const planned = (run: Run): Task[] => [...run.tasks.values()].filter((task) => task.parent === undefined);

export const attemptCount = (task: Task): number => new Set(task.attempts.map((attempt) => attempt.attempt)).size;

export const itemsOf = (run: Run, task: Task): Task[] =>
  [...run.tasks.values()].filter((other) => other.parent === task.id);

/** The calls that a question asks about, the first first; a plan and a question in words ask about none. */
export function pendingCalls({ what, task, text, question }: AskedQuestion): PendingCall[] {
  if (what !== "tool" && what !== "effect") return [];
  const owner = question?.task || task;
  const first: PendingCall = {
    call: question?.call || 1, text, tool: question?.tool ?? "", arguments: question?.arguments, because: question?.because,
    key: question?.key, task: owner, step: question?.step, earlier: question?.earlier,
  };
  return [first, ...(question?.also ?? []).map((call) => ({ ...call, task: call.task || owner }))];
}
