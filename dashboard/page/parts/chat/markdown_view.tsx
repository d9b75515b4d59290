import { Fragment } from "preact";
import { memo } from "preact/compat";

import { CopyButton } from "../copy";
import { blocks, type Block } from "./blocks";
import { inline, type Inline } from "./inline";

/** Markdown as elements: what the text says is never read as HTML. */
export function Markdown({ text }: { text: string }) {
  return <Blocks blocks={blocks(text)} />;
}

function Blocks({ blocks: all }: { blocks: readonly Block[] }) {
  return (
    <>
      {all.map((block, index) => (
        <OneBlock key={index} block={block} />
      ))}
    </>
  );
}

/** While an answer grows only its last block changes. */
const OneBlock = memo(
  function OneBlock({ block }: { block: Block }) {
    switch (block.type) {
      case "paragraph":
        return (
          <p>
            <Text text={block.text} />
          </p>
        );
      case "heading":
        return <Heading level={block.level} text={block.text} />;
      case "rule":
        return <hr />;
      case "code":
        return <CodeBlock language={block.language} text={block.text} />;
      case "quote":
        return (
          <blockquote>
            <Blocks blocks={block.blocks} />
          </blockquote>
        );
      case "list": {
        const items = block.items.map((item, index) => (
          <li key={index}>
            <Blocks blocks={item} />
          </li>
        ));
        return block.isOrdered ? <ol start={block.start}>{items}</ol> : <ul>{items}</ul>;
      }
      case "table":
        return <Table {...block} />;
    }
  },
  (before, after) => JSON.stringify(before.block) === JSON.stringify(after.block),
);

/** Of one rank for who listens, since models skip ranks; as large as the model chose. */
function Heading({ level, text }: { level: number; text: string }) {
  return (
    <h2 class={`heading-${Math.min(3, level)}`}>
      <Text text={text} />
    </h2>
  );
}

function CodeBlock({ language, text }: { language: string; text: string }) {
  const name = language === "" ? "code" : language;
  return (
    <figure class="code-block">
      <figcaption>
        <span>{name}</span>
        <CopyButton text={text} label={`Copy ${name}`} />
      </figcaption>
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
    </figure>
  );
}

function Table({ columns, head, rows }: Extract<Block, { type: "table" }>) {
  return (
    <div class="scroll" tabIndex={0}>
      <table>
        <thead>
          <tr>
            {columns.map((side, index) => (
              <th key={index} scope="col" class={side}>
                <Text text={head[index] ?? ""} />
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, number) => (
            <tr key={number}>
              {columns.map((side, index) => (
                <td key={index} class={side}>
                  <Text text={row[index] ?? ""} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Text({ text }: { text: string }) {
  return <Parts parts={inline(text)} />;
}

function Parts({ parts }: { parts: readonly Inline[] }) {
  return (
    <>
      {parts.map((part, index) => (
        <Fragment key={index}>
          <Part part={part} />
        </Fragment>
      ))}
    </>
  );
}

function Part({ part }: { part: Inline }) {
  switch (part.type) {
    case "text":
      return <>{part.text}</>;
    case "code":
      return <code>{part.text}</code>;
    case "break":
      return <br />;
    case "strong":
      return (
        <strong>
          <Parts parts={part.children} />
        </strong>
      );
    case "emphasis":
      return (
        <em>
          <Parts parts={part.children} />
        </em>
      );
    case "deleted":
      return (
        <del>
          <Parts parts={part.children} />
        </del>
      );
    case "link":
      return (
        <a href={part.href} target="_blank" rel="noopener noreferrer" title={part.href}>
          <Parts parts={part.children} />
        </a>
      );
  }
}
