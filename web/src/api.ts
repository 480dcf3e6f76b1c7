// Calls of the server's own API. The token comes in the fragment of the address, which no server sees, and stays in
// this tab.

import { computed, effect, signal } from "@preact/signals";

const KEY = "chargehand.key";

function takeKey(): string {
  const given = /[#&]key=([^&]+)/.exec(location.hash)?.[1];
  if (given) {
    sessionStorage.setItem(KEY, decodeURIComponent(given));
    history.replaceState(history.state, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(KEY) ?? "";
}

export const key = signal(takeKey());
/** Why the last call did not get through; empty: it did. */
export const outage = signal("");
/** Whether the server is there; what acts waits until it is there again. */
export const isOnline = computed(() => !outage.value);
/** Whether a token is needed, or another one. */
export const needsKey = signal(false);
/** By how many seconds the clock of the server is ahead of ours. */
export const clockAhead = signal(0);
/** What the token allows; nothing until the server has said it. */
export const scopes = signal<string[]>([]);

export const serverNow = (): number => Date.now() / 1000 + clockAhead.value;
export const mayAct = (): boolean => scopes.value.includes("run");
export const mayDelete = (): boolean => scopes.value.includes("admin");

export function setKey(token: string): void {
  sessionStorage.setItem(KEY, token);
  key.value = token;
  needsKey.value = false;
}

export type Fault = { place: string; message: string; code?: string };

/** What the server refuses, in its own words. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly faults: Fault[] = [],
  ) {
    super(detail);
  }
}

export function headers(more: Record<string, string> = {}): Record<string, string> {
  return key.value ? { Authorization: `Bearer ${key.value}`, ...more } : more;
}

export async function problemOf(response: Response): Promise<Problem> {
  const told = (await response.json().catch(() => ({}))) as { code?: string; detail?: string; errors?: Fault[] };
  if (response.status === 401) needsKey.value = true;
  return new Problem(response.status, told.code ?? "", told.detail ?? response.statusText, told.errors);
}

/** What to say when a call found no server. */
export const noServer = (): string => (navigator.onLine ? "The server does not answer." : "This device is offline.");

async function call<Reply>(method: string, path: string, body?: unknown): Promise<Reply> {
  const hasBody = body !== undefined;
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers: headers(hasBody ? { "Content-Type": "application/json" } : {}),
      body: hasBody ? JSON.stringify(body) : undefined,
    });
  } catch {
    outage.value = noServer();
    throw new Problem(0, "offline", `${outage.value} Try again when it is back.`);
  }
  outage.value = "";
  if (!response.ok) throw await problemOf(response);
  return (response.status === 204 ? undefined : await response.json()) as Reply;
}

export const get = <Reply>(path: string): Promise<Reply> => call<Reply>("GET", path);
export const post = <Reply>(path: string, body: unknown = {}): Promise<Reply> => call<Reply>("POST", path, body);
export const put = <Reply>(path: string, body: unknown): Promise<Reply> => call<Reply>("PUT", path, body);
export const remove = <Reply>(path: string): Promise<Reply> => call<Reply>("DELETE", path);

/** The path of a run in the API; the name of a nested run has slashes. */
export const runPath = (run: string): string => `/api/runs/${run.split("/").map(encodeURIComponent).join("/")}`;

type Caller = { tenant: string; scopes: string[]; now: number };

/** Learn what the token allows and what the clock of the server says. */
export async function meet(): Promise<void> {
  try {
    const me = await get<Caller>("/api/me");
    scopes.value = me.scopes;
    clockAhead.value = me.now - Date.now() / 1000;
  } catch {
    // a token that is missing is asked for, and a server that is gone is said to be
  }
}

const TRY_AGAIN = 2_000;

/** While the server is gone, ask for it again and again: a view without a stream would not notice that it is back. */
effect(() => {
  if (isOnline.value) return;
  const timer = setInterval(() => { void meet(); }, TRY_AGAIN);
  return () => clearInterval(timer);
});
