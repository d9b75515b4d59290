import { signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";

import { problem } from "../../shared/problem";
import { ProblemBox } from "./problem";

/** A view whose code is fetched when it is first shown, and kept. */
export function lazyView<Props extends object>(
  fetchIt: () => Promise<ComponentType<Props>>,
): ComponentType<Props> {
  const view = signal<ComponentType<Props> | null | undefined>(undefined);
  const begin = (): void => {
    view.value = undefined;
    fetchIt().then(
      (fetched) => (view.value = fetched),
      () => (view.value = null),
    );
  };
  return function LazyView(props: Props) {
    useEffect(() => {
      if (view.peek() === undefined) begin();
    }, []);
    const View = view.value;
    if (View === undefined) return null;
    if (View !== null) return <View {...props} />;
    return (
      <div class="stack">
        <ProblemBox problem={problem("DASHBOARD_UNREACHABLE", "This view could not be fetched.")} />
        <div>
          <button type="button" class="button" onClick={begin}>
            Try again
          </button>
        </div>
      </div>
    );
  };
}
