// Where the page is: the path and the query of the address, as signals.

import { computed, signal } from "@preact/signals";

export const address = signal(location.pathname + location.search);
export const path = computed(() => address.value.split("?")[0] ?? "/");
export const query = computed(() => new URLSearchParams(address.value.split("?")[1] ?? ""));

addEventListener("popstate", () => {
  address.value = location.pathname + location.search;
});

export function go(to: string, { replace = false } = {}): void {
  history[replace ? "replaceState" : "pushState"](null, "", to);
  address.value = to;
}

/** Change parts of the query; an empty value takes a part away. */
export function setQuery(changes: Record<string, string>, replace = true): void {
  const next = new URLSearchParams(query.value);
  for (const [name, value] of Object.entries(changes)) {
    if (value) next.set(name, value);
    else next.delete(name);
  }
  const text = next.toString();
  go(path.value + (text ? `?${text}` : ""), { replace });
}

export const runAddress = (run: string): string => `/runs/${run.split("/").map(encodeURIComponent).join("/")}`;
