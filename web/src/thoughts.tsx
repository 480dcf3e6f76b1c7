// What a model thinks before it answers, while it works: folded up, and apart from what it writes.

import type { JSX } from "preact";

export function Thoughts({ text }: { text: string | undefined }): JSX.Element | null {
  if (!text) return null;
  return (
    <details class="pn-thoughts">
      <summary>Thoughts</summary>
      <p>{text}</p>
    </details>
  );
}
