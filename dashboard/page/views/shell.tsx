/** The frame about every view: navigation, the connection's state, the theme. */

import { useEffect, useRef } from "preact/hooks";

import { second } from "../parts/clock";
import { Empty } from "../parts/empty";
import { Icon, Mark, type IconName } from "../parts/icon";
import { lazyView } from "../parts/lazy";
import { href, route } from "../parts/route";
import { chooseTheme, theme, type Theme } from "../parts/theme";
import { retry, retryAt } from "../state/connect";
import { connection, nodeIds, sessionKeys, transfers } from "../state/fleet";
import { EventsView } from "./events";
import { FleetView } from "./fleet";
import { NodePage } from "./node";
import { NotFound } from "./not_found";
import { PlanPage } from "./plan";
import { SessionPage } from "./session";
import { SessionsView } from "./sessions";

const ChatPage = lazyView(async () => (await import("./chat")).ChatPage);
const ModelsView = lazyView(async () => (await import("./models")).ModelsView);

interface Place {
  view: string;
  label: string;
  icon: IconName;
  /** Views that belong to it. */
  also?: readonly string[];
}

const PLACES: readonly Place[] = [
  { view: "fleet", label: "Fleet", icon: "fleet", also: ["node"] },
  { view: "chat", label: "Chat", icon: "chat" },
  { view: "models", label: "Models", icon: "models" },
  { view: "sessions", label: "Sessions", icon: "sessions", also: ["session"] },
  { view: "plan", label: "Plan", icon: "plan" },
  { view: "events", label: "Events", icon: "events" },
];

export function Shell() {
  const main = useRef<HTMLElement>(null);
  const { view, id } = route.value;
  const first = useRef(true);
  useEffect(() => {
    if (first.current) {
      first.current = false;
      return;
    }
    // As after loading a page: reading goes on at its beginning.
    window.scrollTo(0, 0);
    main.current?.focus({ preventScroll: true });
  }, [view, id]);
  const { state, gateway } = connection.value;
  const stale = (state === "lost" || gateway.waitingFor !== "") && nodeIds.value.length > 0;
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to the content
      </a>
      <div class="shell">
        <Side view={view} />
        <div>
          <Banner />
          <main id="main" ref={main} tabIndex={-1} class={stale ? "main stale" : "main"}>
            <View />
          </main>
        </div>
      </div>
    </>
  );
}

function View() {
  const { view, id } = route.value;
  const { told, gateway } = connection.value;
  // A view would say that something is missing which only nobody told yet.
  if (!told) return null;
  if (gateway.address === "" && gateway.fault === "") {
    return <Empty title={`Waiting for ${gateway.waitingFor}`} />;
  }
  switch (view) {
    case "fleet":
      return <FleetView />;
    case "node":
      return <NodePage key={id} nodeId={id} />;
    case "sessions":
      return <SessionsView />;
    case "session":
      return <SessionPage key={id} sessionKey={id} />;
    case "plan":
      return <PlanPage />;
    case "chat":
      return <ChatPage />;
    case "models":
      return <ModelsView />;
    case "events":
      return <EventsView />;
    default:
      return <NotFound />;
  }
}

function Side({ view }: { view: string }) {
  return (
    <header class="side">
      <a class="brand" href={href("fleet")} aria-label="Kakeya Fleet, home">
        <Mark />
        <span>Kakeya Fleet</span>
      </a>
      <nav class="nav" aria-label="Views">
        {PLACES.map((place) => {
          const here = place.view === view || place.also?.includes(view) === true;
          return (
            <a
              key={place.view}
              href={href(place.view)}
              {...(here ? { "aria-current": "page" as const } : {})}
            >
              <Icon name={place.icon} />
              <span>{place.label}</span>
              <Count view={place.view} />
            </a>
          );
        })}
      </nav>
      <div class="side-foot">
        <Gateway />
        <ThemeSwitch />
      </div>
    </header>
  );
}

function Count({ view }: { view: string }) {
  const amount =
    view === "sessions"
      ? sessionKeys.value.length
      : view === "models"
        ? transfers.value.filter((transfer) => transfer.state === "running").length
        : 0;
  if (amount === 0) return null;
  return (
    <span class="count" aria-hidden="true">
      {amount}
    </span>
  );
}

function Gateway() {
  const { state, fleetName, gateway } = connection.value;
  const waits = state === "live" && gateway.waitingFor !== "";
  const word = waits ? `waiting for ${gateway.waitingFor}` : state;
  const tone = waits ? "warn" : { live: "good", connecting: "idle", lost: "bad" }[state];
  return (
    <div class="gateway">
      <span class={`state ${tone}`} aria-hidden="true" />
      <strong class="clip">{fleetName === "" ? "fleet" : fleetName}</strong>
      <code title="The gateway">{gateway.address === "" ? " " : gateway.address}</code>
      <span class="unseen">The view is {word}</span>
    </div>
  );
}

const THEMES: readonly { theme: Theme; label: string }[] = [
  { theme: "light", label: "Light" },
  { theme: "dark", label: "Dark" },
  { theme: "system", label: "As the device" },
];

function ThemeSwitch() {
  return (
    <div class="theme" role="group" aria-label="Theme">
      {THEMES.map((each) => (
        <button
          key={each.theme}
          type="button"
          aria-pressed={theme.value === each.theme}
          aria-label={each.label}
          title={each.label}
          onClick={() => chooseTheme(each.theme)}
        >
          <Icon name={each.theme} size={15} />
        </button>
      ))}
    </div>
  );
}

/** What is lost, and that what is shown is the last that was heard. The region is always there, so that it is read out. */
function Banner() {
  const { state, gateway } = connection.value;
  const lost = state === "lost";
  return (
    <div role="status">
      {lost && (
        <div class="banner bad">
          <Icon name="error" size={17} />
          <strong>The dashboard’s process does not answer.</strong>
          <span>
            What is shown is the last that was heard. If it ended, start it with{" "}
            <code>fleet dashboard</code>
          </span>
          <Retrying />
        </div>
      )}
      {!lost && gateway.fault !== "" && (
        <div class="banner">
          <Icon name="warning" size={17} />
          <strong>Waiting for {gateway.waitingFor}.</strong>
          <span>
            {sentence(gateway.fault)} Start one with <code>fleet join</code>; it is found by itself.
          </span>
        </div>
      )}
    </div>
  );
}

/** When it is asked again, and a way not to wait for that. */
function Retrying() {
  const seconds = Math.ceil((retryAt.value - second.value - connection.value.clockOffset) / 1000);
  return (
    <>
      <span aria-hidden="true">{seconds > 0 ? `Retrying in ${seconds} s.` : "Retrying."}</span>
      <button type="button" class="button small" onClick={retry}>
        Try now
      </button>
    </>
  );
}

function sentence(words: string): string {
  return `${words[0]?.toUpperCase()}${words.slice(1)}`;
}
