import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const KEY = "kakeya-theme";

/** The chosen theme, remembered in this browser; "system" follows the device. */
export const theme = signal<Theme>(remembered());

/** Counts changes of the colours, also those that the device makes: what draws on a canvas reads it. */
export const paint = signal(0);

export function chooseTheme(chosen: Theme): void {
  theme.value = chosen;
  if (chosen === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = chosen;
  try {
    if (chosen === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, chosen);
  } catch {
    // A browser that keeps nothing for this page forgets the choice with it.
  }
  paint.value += 1;
}

/** Follows the device's theme; returns what stops it. */
export function followDeviceTheme(): () => void {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const repaint = (): void => {
    paint.value += 1;
  };
  dark.addEventListener("change", repaint);
  return () => dark.removeEventListener("change", repaint);
}

function remembered(): Theme {
  const kept = globalThis.document?.documentElement.dataset["theme"];
  return kept === "light" || kept === "dark" ? kept : "system";
}

/** A colour of the style sheet as a canvas takes it. */
export function resolvedColour(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}
