// A button that copies a text and says so.

import type { JSX } from "preact";
import { useState } from "preact/hooks";

export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }): JSX.Element {
  const [isCopied, setCopied] = useState(false);
  const copy = (): void => {
    void navigator.clipboard?.writeText(text).then(() => {
      setCopied(true);
      setTimeout(() => setCopied(false), 1500);
    });
  };
  return <button class="copy" onClick={copy}>{isCopied ? "Copied" : label}</button>;
}
