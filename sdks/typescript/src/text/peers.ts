/** The ecosystem's tokenizer and template libraries, which are optional. */

import { TextExtraMissing } from "../errors.js";

const MEND = "npm install @huggingface/tokenizers @huggingface/jinja";

/** The tokenizer library. Throws TextExtraMissing. */
export async function tokenizerLibrary(): Promise<typeof import("@huggingface/tokenizers")> {
  try {
    return await import("@huggingface/tokenizers");
  } catch (error) {
    throw missing(error);
  }
}

/** The template library. Throws TextExtraMissing. */
export async function templateLibrary(): Promise<typeof import("@huggingface/jinja")> {
  try {
    return await import("@huggingface/jinja");
  } catch (error) {
    throw missing(error);
  }
}

function missing(cause: unknown): TextExtraMissing {
  const detail = cause instanceof Error ? cause.message : String(cause);
  return new TextExtraMissing(`text needs two more packages (${detail}): ${MEND}`, { cause });
}
