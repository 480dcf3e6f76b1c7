// Server-sent events, read with fetch: EventSource cannot send a token. A stream that breaks is taken up again after
// the last event that came, and one that is silent for too long counts as broken.

import { Problem, headers, noServer, outage, problemOf } from "./api.ts";

const SILENCE = 20_000;
const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;

export type StreamEvent = { id: string; name: string; data: string };

type Options = {
  /** Where to read from, asked again at each try. */
  path: () => string;
  hear: (events: StreamEvent[]) => void;
  /** Called when nothing more will come (204). */
  over?: () => void;
  refused?: (problem: Problem) => void;
};

const pause = (wait: number, stop: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, wait);
    stop.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });

function parseEvent(text: string): StreamEvent | undefined {
  const event: StreamEvent = { id: "", name: "", data: "" };
  for (const line of text.split("\n")) {
    if (line.startsWith("data: ")) event.data += line.slice(6);
    else if (line.startsWith("id: ")) event.id = line.slice(4);
    else if (line.startsWith("event: ")) event.name = line.slice(7);
  }
  return event.data ? event : undefined;
}

async function readOnce(options: Options, stop: AbortSignal): Promise<"over" | "broken"> {
  const connection = new AbortController();
  const abort = (): void => connection.abort();
  stop.addEventListener("abort", abort, { once: true });
  let watchdog = setTimeout(abort, SILENCE);
  try {
    const response = await fetch(options.path(), {
      headers: headers({ Accept: "text/event-stream" }),
      signal: connection.signal,
    });
    if (response.status === 204) return "over";
    if (!response.ok || !response.body) throw await problemOf(response);
    outage.value = "";
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      clearTimeout(watchdog);
      watchdog = setTimeout(abort, SILENCE);
      if (done) return "broken";
      const parts = (text + value).split("\n\n");
      text = parts.pop() ?? "";
      const events = parts.map(parseEvent).filter((event) => event !== undefined);
      if (events.length) options.hear(events);
    }
  } finally {
    clearTimeout(watchdog);
    stop.removeEventListener("abort", abort);
  }
}

/** Read a stream until the returned function is called, or the server says that it is over or refuses it. */
export function follow(options: Options): () => void {
  const stop = new AbortController();
  const read = async (): Promise<void> => {
    let wait = FIRST_WAIT;
    while (!stop.signal.aborted) {
      const began = Date.now();
      try {
        if ((await readOnce(options, stop.signal)) === "over") return options.over?.();
        if (Date.now() - began > LONGEST_WAIT) wait = FIRST_WAIT;
      } catch (error) {
        if (stop.signal.aborted) return;
        const isRefusal = error instanceof Problem && error.status >= 400 && error.status < 500 && error.status !== 429;
        if (isRefusal) return options.refused?.(error);
        outage.value = error instanceof Problem ? `The server answers with an error (${error.status}).` : noServer();
      }
      await pause(wait, stop.signal);
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
  };
  void read();
  return () => stop.abort();
}
