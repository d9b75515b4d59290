import { setTimeout as pause } from "node:timers/promises";

/** Asks until the answer is neither undefined, null nor false; throws after `seconds`. */
export async function until<Answer>(
  ask: () => Answer | Promise<Answer>,
  what: string,
  seconds = 60,
): Promise<Exclude<Answer, undefined | null | false>> {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined && answer !== null && answer !== false) {
      return answer as Exclude<Answer, undefined | null | false>;
    }
    if (Date.now() > deadline) throw new Error(`Not within ${seconds} s: ${what}`);
    await pause(20);
  }
}
