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
  return function LazyView(props: Props) {
    useEffect(() => {
      if (view.peek() !== undefined) return;
      // A page of before an upgrade asks for files that are no more: it has to be loaded anew.
      fetchIt().then(
        (fetched) => (view.value = fetched),
        () => (view.value = null),
      );
    }, []);
    const View = view.value;
    if (View === undefined) return null;
    if (View !== null) return <View {...props} />;
    return (
      <div class="stack">
        <ProblemBox problem={problem("DASHBOARD_UNREACHABLE", "This view could not be fetched.")} />
        <div>
          <button type="button" class="button" onClick={() => window.location.reload()}>
            Load the page again
          </button>
        </div>
      </div>
    );
  };
}
