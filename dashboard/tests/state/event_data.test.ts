import { expect, test } from "vitest";

import { eventData } from "../../page/state/event_data";

test("events come whole however they are cut, without signs of life", async () => {
  const text =
    'data: {"a":"é"}\n\nevent: alive\ndata: \n\n: a comment\n\ndata: 1\ndata: 2\n\ndata: cut';
  const bytes = new TextEncoder().encode(text);
  for (const size of [1, 3, 7, bytes.length]) {
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        for (let at = 0; at < bytes.length; at += size) {
          controller.enqueue(bytes.slice(at, at + size));
        }
        controller.close();
      },
    });
    const told: string[] = [];
    for await (const data of eventData(body)) told.push(data);
    expect(told).toEqual(['{"a":"é"}', "1\n2"]);
  }
});
