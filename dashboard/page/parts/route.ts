/** The page's addresses: `#/node/ID?key=value`. Links are links, and the back button works. */

import { computed, signal } from "@preact/signals";

export interface Route {
  /** fleet, chat, models, node, sessions, session, plan, events, or what was typed. */
  view: string;
  /** What follows the view, decoded. */
  id: string;
  query: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const slash = path.indexOf("/");
  const view = slash < 0 ? path : path.slice(0, slash);
  return {
    view: view === "" ? "fleet" : view,
    id: slash < 0 ? "" : decode(path.slice(slash + 1)),
    query: new URLSearchParams(query),
  };
}

/** The address of a view. Slashes within an id stay readable: only what would end the path is encoded. */
export function href(view: string, id = "", query: Readonly<Record<string, string>> = {}): string {
  const path = id === "" ? view : `${view}/${id.split("/").map(encodeURIComponent).join("/")}`;
  const rest = Object.keys(query).length === 0 ? "" : new URLSearchParams(query).toString();
  return `#/${path === "fleet" ? "" : path}${rest === "" ? "" : `?${rest}`}`;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const hash = signal("");

export const route = computed(() => parseRoute(hash.value));

/** Follows the address; returns what stops it. */
export function followAddress(): () => void {
  const follow = (): void => {
    hash.value = window.location.hash;
  };
  follow();
  window.addEventListener("hashchange", follow);
  return () => window.removeEventListener("hashchange", follow);
}

/** Changes the address in place, for choices that the back button should not walk through. */
export function replaceAddress(address: string): void {
  window.history.replaceState(null, "", address);
  hash.value = address;
}
