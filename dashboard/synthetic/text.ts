/** The tokenizer that synthetic nodes serve, and what they answer. */

import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { TextCodec } from "@kakeya/runtime/text";

const NAMES = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"] as const;

/** Every answer: a synthetic node computes nothing. */
const SCRIPT = ` Drafting and deciding are **two jobs**, so two machines can do them at once:

1. A *proposer* guesses the next few tokens. It may be small, and it may be wrong.
2. The *verifier* reads the whole guess in **one forward**, keeps the longest part that it would have said itself, and adds a token of its own.

\`\`\`python
def verify(choices, draft):
    kept = 0
    while kept < len(draft) and draft[kept] == choices[kept]:
        kept += 1
    return draft[:kept] + [choices[kept]]
\`\`\`

A forward of eight tokens takes hardly longer than one of a single token, since the weights are read once either way:

| tokens in a forward | time | tokens kept |
|---:|---:|---:|
| 1 | 21 ms | 1 |
| 8 | 24 ms | 3.9 |

> The text is the verifier's own, whatever the proposer does.
`;

export interface ServedText {
  readonly files: readonly { name: string; bytes: Buffer; sha256: string }[];
  /** The answer's ids, the last of them ends it. */
  readonly answer: readonly number[];
}

/** Reads the tokenizer of the model in `folder`. */
export async function servedText(folder: string): Promise<ServedText> {
  const files = await Promise.all(
    NAMES.map(async (name) => {
      const bytes = await readFile(join(folder, name));
      return { name, bytes, sha256: createHash("sha256").update(bytes).digest("hex") };
    }),
  );
  const codec = await TextCodec.fromFolder(folder);
  const [end] = codec.stopTokenIds;
  return { files, answer: [...codec.encode(SCRIPT), ...(end === undefined ? [] : [end])] };
}
