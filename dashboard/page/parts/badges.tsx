import type { ModelView } from "../../shared/messages";
import type { RoleName, StateWord } from "./states";

export function State({ word, tone }: StateWord) {
  return <span class={`state ${tone}`}>{word}</span>;
}

export function RoleTag({ role }: { role: RoleName }) {
  return <span class={`tag ${role}`}>{role}</span>;
}

/** autoregressive, n-gram, masked diffusion, dflash. */
export function kindName(model: Pick<ModelView, "kind">): string {
  return model.kind === "ngram" ? "n-gram" : model.kind.replaceAll("_", " ");
}
