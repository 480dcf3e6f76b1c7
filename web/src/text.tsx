// Markdown to nodes, never to HTML: what a model wrote cannot become markup. And the difference of two texts by words.

import type { ComponentChildren, JSX } from "preact";

/** Makes the chip of a citation; undefined where the text in brackets is none. */
export type Cite = (id: string) => JSX.Element | undefined;
/** Wraps a figure that nothing supports. */
export type Mark = (text: string) => ComponentChildren;

const ITEM = /^\s*(?:[-*]|\d+[.)])\s+/;
const BLOCK = /^(?:```|#{1,4}\s|\s*\||\s*(?:[-*]|\d+[.)])\s)/;
const INLINE = /\*\*(.+?)\*\*|`([^`]+)`|\[([\w.-]+(?:\[\d+\])?(?:,\s*[\w.-]+(?:\[\d+\])?)*)\](?!\()|(https?:\/\/[^\s<>)"']+)/g;

export function Markdown({ text, cite, mark }: { text: string; cite?: Cite; mark?: Mark }): JSX.Element {
  const lines = text.replace(/\r/g, "").split("\n");
  const nodes: JSX.Element[] = [];
  const inline = (part: string): ComponentChildren[] => inlineNodes(part, cite, mark);
  const take = (wanted: (line: string) => boolean): string[] => {
    const taken: string[] = [];
    while (lines.length && wanted(lines[0]!)) taken.push(lines.shift()!);
    return taken;
  };
  while (lines.length) {
    const line = lines[0]!;
    const heading = /^#{1,4}\s+(.*)/.exec(line);
    if (!line.trim()) lines.shift();
    else if (line.startsWith("```")) {
      lines.shift();
      nodes.push(<pre>{take((each) => !each.startsWith("```")).join("\n")}</pre>);
      lines.shift();
    } else if (heading) {
      lines.shift();
      nodes.push(<h4>{inline(heading[1]!)}</h4>);
    } else if (/^\s*\|/.test(line)) nodes.push(tableNode(take((each) => /^\s*\|/.test(each)), inline));
    else if (ITEM.test(line)) {
      const items = take((each) => ITEM.test(each)).map((each) => <li>{inline(each.replace(ITEM, ""))}</li>);
      nodes.push(/^\s*\d/.test(line) ? <ol>{items}</ol> : <ul>{items}</ul>);
    } else {
      const first = lines.shift()!;
      const rest = take((each) => Boolean(each.trim()) && !BLOCK.test(each));
      const parts = [first, ...rest].flatMap((each, index) => [index ? <br /> : null, ...inline(each)]);
      nodes.push(<p>{parts}</p>);
    }
  }
  return <div class="prose">{nodes}</div>;
}

function tableNode(lines: string[], inline: (text: string) => ComponentChildren[]): JSX.Element {
  const cells = lines.map((line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim()));
  const rows = cells.filter((row) => !row.every((cell) => /^:?-*:?$/.test(cell)));
  const hasHead = cells.length > rows.length && cells[0] === rows[0];
  const head = hasHead ? rows.shift() : undefined;
  return (
    <div class="tx-scroll" tabIndex={0} role="group" aria-label="Table">
      <table>
        {head && <thead><tr>{head.map((cell) => <th scope="col">{inline(cell)}</th>)}</tr></thead>}
        <tbody>{rows.map((row) => <tr>{row.map((cell) => <td>{inline(cell)}</td>)}</tr>)}</tbody>
      </table>
    </div>
  );
}

function inlineNodes(text: string, cite?: Cite, mark?: Mark): ComponentChildren[] {
  const nodes: ComponentChildren[] = [];
  const plain = (part: string): ComponentChildren => (mark ? mark(part) : part);
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > at) nodes.push(plain(text.slice(at, match.index)));
    const [whole, bold, code, ids, url] = match;
    if (bold) nodes.push(<strong>{inlineNodes(bold, cite, mark)}</strong>);
    else if (code) nodes.push(<code>{code}</code>);
    else if (url) nodes.push(<a href={url} rel="noreferrer noopener" target="_blank">{url}</a>);
    else {
      const chips = ids!.split(/,\s*/).map((id) => cite?.(id));
      nodes.push(chips.every(Boolean) ? <span class="tx-cites">{chips}</span> : whole);
    }
    at = match.index + whole.length;
  }
  if (at < text.length) nodes.push(plain(text.slice(at)));
  return nodes;
}

const MAX_WORDS = 1500;
type Part = ["same" | "added" | "removed", string];

/** What went and what came, by the longest common sequence of words. */
export function diffWords(before: string, after: string): Part[] {
  const old = before.split(/(\s+)/).slice(0, MAX_WORDS);
  const new_ = after.split(/(\s+)/).slice(0, MAX_WORDS);
  const lengths = Array.from({ length: old.length + 1 }, () => new Uint16Array(new_.length + 1));
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = new_.length - 1; j >= 0; j -= 1) {
      const longer = Math.max(lengths[i + 1]![j]!, lengths[i]![j + 1]!);
      lengths[i]![j] = old[i] === new_[j] ? lengths[i + 1]![j + 1]! + 1 : longer;
    }
  }
  const parts: Part[] = [];
  const put = (kind: Part[0], word: string): void => {
    const last = parts.at(-1);
    if (last?.[0] === kind) last[1] += word;
    else parts.push([kind, word]);
  };
  let i = 0;
  let j = 0;
  while (i < old.length || j < new_.length) {
    const isSame = i < old.length && j < new_.length && old[i] === new_[j];
    const isAdded = j < new_.length && (i >= old.length || lengths[i]![j + 1]! > lengths[i + 1]![j]!);
    if (isSame) {
      put("same", old[i]!);
      i += 1;
      j += 1;
    } else if (isAdded) put("added", new_[j++]!);
    else put("removed", old[i++]!);
  }
  return parts;
}

export function Diff({ before, after }: { before: string; after: string }): JSX.Element {
  const nodes = diffWords(before, after).map(([kind, text]) => {
    if (kind === "added") return <ins>{text}</ins>;
    return kind === "removed" ? <del>{text}</del> : text;
  });
  return <p class="tx-diff">{nodes}</p>;
}

const LEAST_ALIKE = 0.5;

/** Two texts: as a difference where they are alike, else side by side. */
export function Compared({ before, after }: { before: string; after: string }): JSX.Element {
  if (before === after) return <p class="tx-same">{before}</p>;
  const same = diffWords(before, after).reduce((sum, [kind, text]) => sum + (kind === "same" ? text.trim().length : 0), 0);
  if (same >= LEAST_ALIKE * Math.max(before.length, after.length)) return <Diff before={before} after={after} />;
  return <div class="tx-two"><p>{before || "–"}</p><p>{after || "–"}</p></div>;
}
