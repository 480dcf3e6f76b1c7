// What every view has: the bar at the top, links that stay in the page, the sheet of keys, the form for a token.

import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { type Problem, outage, setKey } from "./api.ts";
import { go, path } from "./route.ts";
import { Icon } from "./states.tsx";

export const isHelpOpen = signal(false);
/** What is said for a moment, in the bar. */
const said = signal("");
const SAID_FOR = 2_000;

export function say(text: string): void {
  said.value = text;
  setTimeout(() => { said.value = ""; }, SAID_FOR);
}

type LinkProps = { to: string; class?: string; title?: string; children?: ComponentChildren; label?: string };

export function Link({ to, label, children, ...rest }: LinkProps): JSX.Element {
  const follow = (event: MouseEvent): void => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    go(to);
  };
  return <a href={to} aria-label={label} {...rest} onClick={follow}>{children}</a>;
}

export function Helmet({ size }: { size: number }): JSX.Element {
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" fill="#1C1D20" />
      <path d="M7 20.5a9 9 0 0 1 18 0z" fill="#FFC53D" />
      <path d="M13.6 11.9v6.1M18.4 11.9v6.1" stroke="#1C1D20" stroke-width="1.5" stroke-linecap="round" />
      <rect x="4.5" y="20.5" width="23" height="3.2" rx="1.6" fill="#FFC53D" />
    </svg>
  );
}

const VIEWS: [string, string, RegExp][] = [
  ["/", "Runs", /^\/($|runs|compare)/],
  ["/teams", "Teams", /^\/teams/],
  ["/memory", "Memory", /^\/memory/],
  ["/evals", "Evals", /^\/evals/],
];

export function Bar({ children }: { children?: ComponentChildren }): JSX.Element {
  return (
    <header class="bar">
      <a class="skip-link" href="#main">Skip to content</a>
      <Link to="/" class="bar-brand" label="chargehand, all runs"><Helmet size={22} /><b>chargehand</b></Link>
      <nav aria-label="Views">
        {VIEWS.map(([to, word, pattern]) => (
          <Link to={to} class={pattern.test(path.value) ? "is-on" : ""}>{word}</Link>
        ))}
      </nav>
      {children}
      <span class="grow" />
      {said.value && <span class="quiet" role="status">{said.value}</span>}
      {outage.value && <span class="bar-offline" role="status"><Icon state="judged" />{outage.value} Trying again …</span>}
      <button class="ghost" title="Keys and colours (?)" aria-label="Keys and colours" onClick={() => { isHelpOpen.value = true; }}>?</button>
    </header>
  );
}

/** A dialog that takes the focus and gives it back. */
export function Dialog({ title, close, children, class: name = "" }: {
  title: string; close: () => void; children: ComponentChildren; class?: string;
}): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    dialog.current?.showModal();
    return () => before?.focus?.();
  }, []);
  const onClick = (event: MouseEvent): void => { if (event.target === dialog.current) close(); };
  return (
    <dialog ref={dialog} class={`dialog ${name}`} aria-label={title} onClick={onClick} onCancel={close}>
      <div class="dialog-body"><h2>{title}</h2>{children}</div>
    </dialog>
  );
}

const KEYS: [string, string][] = [
  ["j  k", "next, previous task"],
  ["Enter", "open the task in focus"],
  ["Esc", "back to the run"],
  ["← →", "along the edges of the graph"],
  ["1 – 5", "tabs of a task"],
  ["[  ]", "one entry back, on"],
  ["0  +  −", "fit, closer, farther"],
  ["a  r", "approve, reject"],
  ["p  x", "pause, cancel"],
  ["f", "fork"],
  ["c", "copy the link"],
  ["/", "search"],
  ["n", "new run"],
  ["g r", "all runs"],
];
const THEME = "chargehand.theme";

export function applyTheme(theme = localStorage.getItem(THEME) ?? ""): void {
  document.documentElement.style.colorScheme = theme || "light dark";
  if (theme) localStorage.setItem(THEME, theme);
  else localStorage.removeItem(THEME);
}

export function HelpSheet(): JSX.Element | null {
  if (!isHelpOpen.value) return null;
  const close = (): void => { isHelpOpen.value = false; };
  const current = localStorage.getItem(THEME) ?? "";
  return (
    <Dialog title="Keys and colours" close={close}>
      <dl class="keys-list">{KEYS.map(([key, what]) => <><dt><kbd>{key}</kbd></dt><dd>{what}</dd></>)}</dl>
      <fieldset class="themes">
        <legend>Colours</legend>
        {[["", "as the system"], ["light", "light"], ["dark", "dark"]].map(([theme, word]) => (
          <label><input type="radio" name="theme" checked={current === theme} onChange={() => applyTheme(theme)} />{word}</label>
        ))}
      </fieldset>
      <div class="dialog-acts"><button onClick={close}>Close</button></div>
    </Dialog>
  );
}

export function KeyForm(): JSX.Element {
  const send = (event: Event): void => {
    event.preventDefault();
    const token = new FormData(event.target as HTMLFormElement).get("token");
    if (typeof token === "string" && token.trim()) setKey(token.trim());
  };
  return (
    <>
      <Bar />
      <main class="page" id="main">
        <form class="key-form" onSubmit={send}>
          <h1>A token is needed</h1>
          <p>The server printed one when it first started. <code>chargehand tokens create</code> makes another, and <code>chargehand serve --open</code> brings its own.</p>
          <label>Token<input name="token" type="password" autocomplete="off" autofocus /></label>
          <div class="dialog-acts"><button class="primary">Open</button></div>
        </form>
      </main>
    </>
  );
}

export function Empty({ state, title, children }: { state?: string; title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="empty">
      {state ? <Icon state={state} size={32} /> : <Helmet size={56} />}
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export const Loading = (): JSX.Element => (
  <div class="loading" role="status" aria-label="Loading">{Array.from({ length: 8 }, () => <i />)}</div>
);

/** Why what a view shows could not be read; that a token is needed has a form of its own. */
export function LoadProblem({ problem }: { problem?: Problem }): JSX.Element | null {
  if (!problem || problem.status === 401) return null;
  return <div class="refusal" role="alert"><p>{problem.message}</p></div>;
}

/** Whether keys are for the page, not for a field that is typed in. */
export const isTyping = (event: KeyboardEvent): boolean =>
  event.metaKey || event.ctrlKey || event.altKey
  || (event.target instanceof Element && event.target.matches("input, textarea, select, dialog *"));
