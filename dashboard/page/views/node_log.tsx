/** The log of a node, as it is written, with its events among its lines. */

import { memo } from "preact/compat";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { LOG_LIMIT } from "../../shared/log";
import type { LogLine, Problem, Severity } from "../../shared/messages";
import { Empty } from "../parts/empty";
import { clockTime, dateTime, day, isToday, plural } from "../parts/format";
import { logRows, type LogRow } from "../parts/log_rows";
import { Mend, ProblemBox } from "../parts/problem";
import { Segmented } from "../parts/segmented";
import { followLog } from "../state/ask";
import { appended } from "../state/bounded";
import { events, fleetNow } from "../state/fleet";
import "../styles/views/log.css";

/** Pixels from the end within which somebody reads what comes. */
const AT_END = 40;

/** What of a file was read. */
interface Followed {
  /** Undefined before the process said; empty where the file is not on its machine. */
  path: string | undefined;
  lines: readonly LogLine[];
  problem: Problem | null;
  ended: boolean;
}

const NOTHING: Followed = { path: undefined, lines: [], problem: null, ended: false };

export function NodeLog({ nodeId, name }: { nodeId: string; name: string }) {
  const [tries, setTries] = useState(0);
  const { path, lines, problem, ended } = useFollowed(nodeId, tries);
  const [least, setLeast] = useState<Severity>("info");
  const [text, setText] = useState("");
  const own = useMemo(
    () => events.value.filter((event) => event.nodeId === nodeId),
    [events.value, nodeId],
  );
  const rows = useMemo(() => logRows(lines, own, { least, text }), [lines, own, least, text]);
  const scrolled = useEnd(rows);
  return (
    <>
      <div class="log-head">
        <div class="filters">
          <Segmented
            legend="Level"
            value={least}
            onChange={setLeast}
            options={[
              { value: "info", label: "All" },
              { value: "warning", label: "Warnings and errors" },
              { value: "error", label: "Errors" },
            ]}
          />
          <input
            class="input"
            type="search"
            placeholder="Search"
            aria-label="Search in the log"
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
        </div>
        <p class="quiet small">
          {path === undefined && problem === null && "Asking for the log."}
          {path === "" && <Elsewhere name={name} />}
          {path !== undefined && path !== "" && (
            <>
              {plural(rows.length, "line")}: of <code>{path}</code>, and its events
            </>
          )}
        </p>
        {problem !== null && <ProblemBox problem={problem} />}
        {ended && path !== "" && (
          <button type="button" class="button small" onClick={() => setTries(tries + 1)}>
            Follow it again
          </button>
        )}
      </div>
      {rows.length === 0 ? (
        <Empty title={least === "info" && text === "" ? "Nothing was written yet" : "No line fits"}>
          {(least !== "info" || text !== "") && "Another level or other words may."}
        </Empty>
      ) : (
        <div
          class="log"
          ref={scrolled}
          tabIndex={0}
          role="region"
          aria-label={`Log of ${name}, scrollable`}
        >
          <ol>
            {rows.map((row) => (
              <Row key={row.key} row={row} />
            ))}
          </ol>
        </div>
      )}
    </>
  );
}

function Elsewhere({ name }: { name: string }) {
  return (
    <>
      These are its events: the lines of its log are where its standard error goes, and are read
      here only where that is a file of this machine. On its own:{" "}
      <code>fleet logs {name} --follow</code>
    </>
  );
}

const Row = memo(
  function Row({ row: { at, level, isEvent, text, mend } }: { row: LogRow }) {
    return (
      <li class={level}>
        <time class="quiet" title={dateTime(at)}>
          {at > 0 && !isToday(at, fleetNow()) && `${day(at)} `}
          {clockTime(at)}
        </time>
        <span class="log-level">{level}</span>
        <span class="log-text">
          {isEvent && <span class="tag plain">event</span>}
          {text}
          <Mend text={mend} />
        </span>
      </li>
    );
  },
  (one, other) => one.row.key === other.row.key && one.row.at === other.row.at,
);

/** Follows the log while it is shown; anew with another number of tries. */
function useFollowed(nodeId: string, tries: number): Followed {
  const [followed, setFollowed] = useState(NOTHING);
  useEffect(() => {
    const left = new AbortController();
    setFollowed(NOTHING);
    const follow = async (): Promise<void> => {
      for await (const told of followLog(nodeId, left.signal)) {
        if (told.type === "file") setFollowed({ ...NOTHING, path: told.path });
        else if (told.type === "problem") setFollowed((was) => ({ ...was, problem: told.problem }));
        else {
          setFollowed((was) => ({ ...was, lines: appended(was.lines, told.lines, LOG_LIMIT) }));
        }
      }
      setFollowed((was) => ({ ...was, ended: true }));
    };
    follow().catch((error: unknown) => {
      if (left.signal.aborted) return;
      // The process went away in the middle of a line.
      if (!(error instanceof TypeError)) throw error;
      setFollowed((was) => ({ ...was, ended: true }));
    });
    return () => left.abort();
  }, [nodeId, tries]);
  return followed;
}

/** Keeps what is scrollable at its end while somebody reads there. */
function useEnd(rows: readonly LogRow[]): { current: HTMLDivElement | null } {
  const place = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    const look = (): void => {
      const rest = element.scrollHeight - element.scrollTop - element.clientHeight;
      atEnd.current = rest < AT_END;
    };
    element.addEventListener("scroll", look);
    return () => element.removeEventListener("scroll", look);
  });
  useLayoutEffect(() => {
    const element = place.current;
    if (element !== null && atEnd.current) element.scrollTop = element.scrollHeight;
  }, [rows]);
  return place;
}
