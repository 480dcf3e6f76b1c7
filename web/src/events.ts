// What the journal holds, as the server sends it. Only fields that the page reads are named; docs/journal.md has all.

export type Amount = { tokens: number; micros: number; calls: number };
/** The cap that stopped something, in its own unit: tokens, dollars, calls or seconds. */
export type CapReached = { cap: "tokens" | "usd" | "calls" | "time"; limit: number; used: number; needed?: number; kept?: number };
export type Failure = { kind: string; message: string; permanent?: boolean; question?: Question; cap?: CapReached | null };
export type Finding = { code: string; place: string; message: string; grave?: boolean };
export type Need = "required" | "optional" | "quorum";
export type Edge = { task: string; need?: Need };
export type PlannedTask = {
  id: string;
  title?: string;
  instruction: string;
  worker?: string;
  match?: unknown;
  after?: (string | Edge)[];
  quorum?: number;
  for_each?: string;
  accept?: string[];
};
export type Plan = { tasks: PlannedTask[]; combine?: string; goal?: string };
export type Gap = {
  task: string;
  status: string;
  reason: string;
  message: string;
  because?: string;
  run?: string;
  worker?: string;
  cap?: CapReached | null;
};
/** A call that an earlier attempt or run made, or may have made. */
export type EarlierCall = {
  tool: string; arguments?: Record<string, unknown>; result?: unknown; happened?: boolean; at?: number; run?: string; task?: string;
};
/** A call that waits for a verdict. `key` is its idempotency key, `step` the one that began an effect in doubt. */
export type PendingCall = {
  call: number; text: string; tool: string; arguments?: Record<string, unknown>; because?: string; key?: string;
  task?: string; attempt?: number; step?: number; earlier?: EarlierCall | null;
};
export type Question = {
  what?: string;
  tool?: string;
  arguments?: Record<string, unknown>;
  because?: string;
  workers?: string[];
  run?: string;
  task?: string;
  plan?: string[];
  call?: number;
  also?: PendingCall[];
  key?: string;
  attempt?: number;
  step?: number;
  earlier?: EarlierCall | null;
  text?: string;
  options?: string[];
  /** With options: another answer may be given as well. */
  free_text?: boolean;
  schema?: unknown;
};
export type Agent = {
  name: string;
  description?: string;
  tools?: string[];
  tags?: string[];
  model?: string;
  seconds?: number | null;
  fallbacks?: string[];
};
export type Budget = { tokens?: number; usd?: number; calls?: number; seconds?: number };
export type Message = { role: string; text?: string; [field: string]: unknown };
export type CheckRefusal = { check: string; problems: string[] };
/** What a note says as data: its own fields follow from `type`. */
export type NoteFact = {
  type: string; text?: string; workers?: string[]; scores?: [string, number][]; checks?: string[]; remarks?: string[];
  refusals?: CheckRefusal[]; sent_back?: boolean; check?: string;
};

/** An event: its own fields follow from `type`, which the fold tells apart. */
export type Event = { type: string; [field: string]: any };
export type Entry = { run: string; seq: number; at: number; event: Event };
