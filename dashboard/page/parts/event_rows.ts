/** All events of the fleet, as rows of a list. */

import { computed } from "@preact/signals";

import { events } from "../state/fleet";
import { eventLines } from "./event_lines";
import { eventRows } from "./incidents";

/** Latest last. */
export const allRows = computed(() => eventRows(eventLines(events.value)));
