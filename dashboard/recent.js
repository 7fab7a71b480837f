// The operations of the last minutes: what the overview counts. Never all of them.

import { get } from "./api.js";
import { now } from "./format.js";

/** Time windows as [minutes, words]. */
export const WINDOWS = [[15, "Last 15 minutes"], [60, "Last hour"], [360, "Last 6 hours"], [1440, "Last 24 hours"]];

const PAGE = 200;
const PAGES = 5;

/** Operations accepted since, at most 1,000: `{items, isComplete, from, to}`; `tell` gets the first of them early. */
export async function recentOperations(minutes, signal, tell = () => {}) {
  const to = now();
  const from = to - minutes * 60_000;
  const items = [];
  let cursor = null;
  for (let page = 0; page < PAGES; page++) {
    const answer = await get("operations", { created_after: new Date(from).toISOString(), limit: PAGE, cursor }, signal);
    items.push(...answer.items);
    cursor = answer.next_cursor;
    if (!cursor) break;
    tell({ items: [...items], isComplete: false, from, to });
  }
  return { items, isComplete: !cursor, from, to };
}

/** How many are in each state. */
export function counted(items) {
  const counts = {};
  for (const { status } of items) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

/** Attempts per operation that was tried at all; null when none was. */
export function amplification(items) {
  const tried = items.filter((one) => one.attempt_count > 0);
  return tried.length ? tried.reduce((sum, one) => sum + one.attempt_count, 0) / tried.length : null;
}
