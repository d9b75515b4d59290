import { useId } from "preact/hooks";

import { STRATEGIES } from "../strategies";
import { nodesByOffer } from "../slow_nodes";
import { Segmented } from "../segmented";
import { Snippets } from "../snippets";
import { isDown } from "../states";
import { change, current, terms, type Terms } from "./conversing";

/** How answers are asked for. */
export function Settings({ model }: { model: string }) {
  const { mode, maxTokens, temperature, seed, speculation, kvStrategy } = terms.value;
  const [systemField, tokensField, temperatureField, seedField] = [
    useId(),
    useId(),
    useId(),
    useId(),
  ];
  const set = (part: Partial<Terms>): void => {
    terms.value = { ...terms.peek(), ...part };
  };
  return (
    <aside class="chat-settings" aria-label="Settings">
      <form class="form" onSubmit={(event) => event.preventDefault()}>
        <div class="field">
          <label for={systemField}>System prompt</label>
          <textarea
            id={systemField}
            class="input"
            rows={3}
            value={current.value.system}
            disabled={mode === "text"}
            placeholder="What the model is told before all else"
            onInput={(event) => change({ system: event.currentTarget.value })}
          />
        </div>
        <div class="field">
          <span class="label">Reads</span>
          <Segmented
            legend="Reads"
            value={mode}
            options={[
              { value: "chat", label: "Turns" },
              { value: "text", label: "Plain text" },
            ]}
            onChange={(chosen) => set({ mode: chosen })}
          />
          <span class="hint">
            {mode === "chat"
              ? "By the model’s chat template."
              : "As it is: the model goes on with your words."}
          </span>
        </div>
        <div class="form-pair">
          <div class="field">
            <label for={tokensField}>Most tokens</label>
            <input
              id={tokensField}
              class="input"
              type="number"
              inputMode="numeric"
              min={1}
              value={maxTokens}
              onChange={(event) => {
                const typed = Math.floor(Number(event.currentTarget.value));
                if (typed >= 1) set({ maxTokens: typed });
              }}
            />
          </div>
          <div class="field">
            <label for={seedField}>Seed</label>
            <input
              id={seedField}
              class="input"
              type="text"
              inputMode="numeric"
              pattern="[0-9]*"
              placeholder="drawn"
              value={seed}
              onInput={(event) => set({ seed: event.currentTarget.value.replaceAll(/\D/g, "") })}
            />
          </div>
        </div>
        <div class="field">
          <label for={temperatureField}>
            Temperature{" "}
            <output class="output">
              {temperature === 0 ? "0, greedy" : temperature.toFixed(2)}
            </output>
          </label>
          <input
            id={temperatureField}
            class="range"
            type="range"
            min={0}
            max={2}
            step={0.05}
            value={temperature}
            style={{ "--done": `${temperature * 50}%` }}
            onInput={(event) => set({ temperature: Number(event.currentTarget.value) })}
          />
        </div>
        <div class="field">
          <span class="label">Speculation</span>
          <Segmented
            legend="Speculation"
            value={speculation}
            options={[
              { value: "auto", label: "Auto" },
              { value: "off", label: "Off" },
            ]}
            onChange={(chosen) => set({ speculation: chosen })}
          />
          <span class="hint">The answer is the same either way; only its speed is not.</span>
        </div>
        <div class="field">
          <span class="label">K/V</span>
          <Segmented
            legend="K/V strategy"
            value={kvStrategy}
            options={STRATEGIES}
            small
            onChange={(chosen) => set({ kvStrategy: chosen })}
          />
        </div>
      </form>
      <details class="from-application">
        <summary>From an application</summary>
        <ModelSnippets model={model} />
      </details>
    </aside>
  );
}

function ModelSnippets({ model }: { model: string }) {
  const holder = nodesByOffer.value.find(
    (node) =>
      !isDown(node) &&
      node.models.some((each) => each.modelId === model && each.role === "verifier"),
  );
  if (holder === undefined) return <p class="quiet">No live node serves it.</p>;
  return <Snippets address={holder.address} httpAddress={holder.httpAddress} model={model} />;
}
