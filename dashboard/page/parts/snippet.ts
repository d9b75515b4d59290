export type Language = "python" | "typescript" | "curl";

export interface SnippetFacts {
  address: string;
  httpAddress: string;
  model: string;
}

/** A whole program that streams an answer of the model. */
export function snippet(language: Language, facts: SnippetFacts): string {
  const { address, httpAddress, model } = facts;
  const quoted = JSON.stringify(model);
  switch (language) {
    case "python":
      return `from kakeya import Client

with Client(${JSON.stringify(address)}) as client:
    text = client.text(${quoted})
    with client.create_session(${quoted}) as session:
        session.append(text.encode("Once upon a time"))
        for tokens in session.generate(max_tokens=64):
            print(text.decode(tokens.token_ids), end="", flush=True)`;
    case "typescript":
      return `import { Client } from "@kakeya/runtime";
import { textCodec } from "@kakeya/runtime/text";

const client = new Client(${JSON.stringify(address)});
const text = await textCodec(client, ${quoted});
const session = await client.createSession(${quoted});
await session.append(text.encode("Once upon a time"));
for await (const { tokenIds } of session.generate({ maxTokens: 64 })) {
  process.stdout.write(text.decode(tokenIds));
}
await session.close();
client.close();`;
    case "curl":
      return `curl -N http://${httpAddress}/v1/chat/completions \\
  -H 'content-type: application/json' \\
  -d '${JSON.stringify({ model, stream: true, messages: [{ role: "user", content: "Hello" }] })}'`;
  }
}
