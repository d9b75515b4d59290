/** The data of server-sent events, one string each; signs of life, and events of other names, are skipped. */
export async function* eventData(
  body: ReadableStream<Uint8Array>,
): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      const events = rest.split("\n\n");
      rest = events.pop() ?? "";
      for (const event of events) {
        const lines = event.split("\n");
        if (lines.some((line) => line.startsWith("event: "))) continue;
        const data = lines
          .filter((line) => line.startsWith("data: "))
          .map((line) => line.slice("data: ".length));
        if (data.length > 0) yield data.join("\n");
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
