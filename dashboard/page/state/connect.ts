import { signal, type ReadonlySignal } from "@preact/signals";

import type { Message } from "../../shared/messages";
import { apply, setConnectionState } from "./fleet";
import { inFrames } from "./frames";

/** Milliseconds before the stream is opened again, doubled with each failure. */
const RETRY_MS = { first: 250, most: 5000 };
/** Milliseconds of silence after which the process counts as lost; it speaks every 5 s at least. */
const SILENCE_MS = 15_000;

const nextTry = signal(0);
let tryNow = (): void => undefined;

/** When a lost process is asked again, by this page's clock in milliseconds since 1970; 0 while it is asked. */
export const retryAt: ReadonlySignal<number> = nextTry;

/** Asks a lost process now. */
export function retry(): void {
  tryNow();
}

/** Follows the process's stream until the returned function is called. */
export function connect(): () => void {
  const receive = inFrames<Message>(apply);
  let source: EventSource | undefined;
  let delay = RETRY_MS.first;
  let waiting: ReturnType<typeof setTimeout> | undefined;
  let silence: ReturnType<typeof setTimeout> | undefined;

  const heard = (): void => {
    clearTimeout(silence);
    silence = setTimeout(lose, SILENCE_MS);
  };
  const lose = (): void => {
    source?.close();
    clearTimeout(silence);
    clearTimeout(waiting);
    setConnectionState("lost");
    waiting = setTimeout(open, delay);
    nextTry.value = Date.now() + delay;
    delay = Math.min(delay * 2, RETRY_MS.most);
  };
  const open = (): void => {
    clearTimeout(waiting);
    nextTry.value = 0;
    source?.close();
    source = new EventSource("/events");
    source.onopen = () => {
      delay = RETRY_MS.first;
      heard();
    };
    source.onmessage = (event: MessageEvent<string>) => {
      heard();
      receive(JSON.parse(event.data) as Message);
    };
    source.addEventListener("alive", heard);
    source.onerror = lose;
    heard();
  };

  tryNow = open;
  open();
  return () => {
    source?.close();
    clearTimeout(silence);
    clearTimeout(waiting);
  };
}
