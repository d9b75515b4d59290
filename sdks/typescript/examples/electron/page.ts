/** The page: a prompt, and an answer that grows. */

import type { FleetBridge } from "./messages.js";

declare global {
  interface Window {
    readonly fleet: FleetBridge;
  }
}

function element<T extends HTMLElement>(selector: string, kind: new () => T): T {
  const found = document.querySelector(selector);
  if (!(found instanceof kind)) {
    throw new Error(`the page has no ${selector}`);
  }
  return found;
}

const form = element("form", HTMLFormElement);
const prompt = element("textarea", HTMLTextAreaElement);
const answer = element("output", HTMLOutputElement);
const stop = element("#stop", HTMLButtonElement);

form.addEventListener("submit", (event) => {
  event.preventDefault();
  answer.textContent = "";
  window.fleet
    .generate(prompt.value, (piece) => answer.append(piece))
    .catch((error: unknown) => answer.append(`\n${String(error)}`));
});
stop.addEventListener("click", () => void window.fleet.stop());
