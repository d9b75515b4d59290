import { useState } from "preact/hooks";

import { Code } from "./copy";
import { Segmented } from "./segmented";
import { snippet, type Language } from "./snippet";

interface SnippetsProps {
  address: string;
  /** Empty where the node serves no HTTP. */
  httpAddress: string;
  model: string;
}

/** What to paste into an application to use this model. */
export function Snippets(props: SnippetsProps) {
  const [language, setLanguage] = useState<Language>("python");
  const options = [
    { value: "python" as const, label: "Python" },
    { value: "typescript" as const, label: "TypeScript" },
    { value: "curl" as const, label: "curl" },
  ];
  return (
    <div class="snippets">
      <Segmented
        legend="Language"
        value={language}
        onChange={setLanguage}
        options={props.httpAddress === "" ? options.slice(0, 2) : options}
        small
      />
      <Code text={snippet(language, props)} label={`${language} example`} />
    </div>
  );
}
