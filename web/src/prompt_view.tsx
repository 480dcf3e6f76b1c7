// What a model was told, in its parts: system, memory, inputs, the task; with the share of tokens of each.

import type { JSX } from "preact";
import type { Entry, Message } from "./events.ts";
import { count } from "./format.ts";
import type { Prompt } from "./run_state.ts";
import { Value, useLeft } from "./value_view.tsx";

type Part = { name: string; kind: "system" | "memory" | "input" | "task" | "frame"; text: string };
const ENVELOPE = /<data ([0-9a-f]+) from "([^"]*)">\n?([\s\S]*?)\n?<\/data \1>/g;
const tokens = (text: string): number => Math.ceil(text.length / 4);

/** A message cut at its envelopes: what is inside one is material, and it is shown as a part with a name. */
function partsOf(message: Message): Part[] {
  const text = message.text ?? "";
  const parts: Part[] = [];
  let at = 0;
  const put = (between: string): void => {
    const words = between.trim();
    if (!words) return;
    const frame = /^Task: /m.test(words) ? "task" : "frame";
    const kind = message.role === "system" ? "system" : frame;
    parts.push({ name: kind === "frame" ? "in between" : kind, kind, text: words });
  };
  for (const match of text.matchAll(ENVELOPE)) {
    put(text.slice(at, match.index));
    const name = match[2]!;
    const block = /^block ([^:]+)/.exec(name)?.[1];
    const kind = block || /memory|archive/.test(name) ? "memory" : "input";
    parts.push({ name: block ? `memory block ${block}` : name.replace(/^task /, "input from "), kind, text: match[3]! });
    at = match.index + match[0].length;
  }
  put(text.slice(at));
  return parts;
}

export function PromptView({ prompt, entries, run }: { prompt: Prompt; entries: Entry[]; run: string }): JSX.Element {
  const messages = useLeft(prompt.messages, run) as Message[] | undefined;
  const firstEntry = prompt.firstIn ? entries.find((entry) => entry.seq === prompt.firstIn)?.event.messages : undefined;
  const first = useLeft(firstEntry ?? [], run) as Message[] | undefined;
  if (!Array.isArray(messages) || !Array.isArray(first)) return <p class="quiet">Loading …</p>;
  const parts = [...first.slice(0, 1), ...messages].flatMap(partsOf);
  const total = parts.reduce((sum, part) => sum + tokens(part.text), 0);
  return (
    <div class="prompt">
      <p class="quiet">{prompt.model}{prompt.tools.length ? ` · tools ${prompt.tools.join(", ")}` : " · no tools"} · about {count(total)} tokens</p>
      <div class="prompt-shares" role="img" aria-label={parts.map((part) => `${part.name} ${tokens(part.text)} tokens`).join(", ")}>
        {parts.map((part) => (
          <span class={`is-${part.kind}`} style={{ flexGrow: tokens(part.text) }} title={`${part.name}: about ${tokens(part.text)} tokens`} />
        ))}
      </div>
      {parts.map((part) => (
        <details class={`prompt-part is-${part.kind}`} open={part.kind !== "system" && part.kind !== "frame"}>
          <summary><i /><b>{part.name}</b><span class="grow" /><span class="quiet">{count(tokens(part.text))} tokens</span></summary>
          {part.kind === "input" ? <Input text={part.text} run={run} /> : <pre tabIndex={0}>{part.text}</pre>}
        </details>
      ))}
    </div>
  );
}

/** A result that another task handed on. */
function Input({ text, run }: { text: string; run: string }): JSX.Element {
  try {
    return <div class="prompt-input"><Value value={JSON.parse(text)} run={run} /></div>;
  } catch {
    return <pre tabIndex={0}>{text}</pre>;
  }
}
