// The operations of the last minutes: what the overview counts. Never all of them.

import { get } from "./api.js";
import { now } from "./format.js";

/** Time windows as [minutes, words]. */
export const WINDOWS = [[15, "Last 15 minutes"], [60, "Last hour"], [360, "Last 6 hours"], [1440, "Last 24 hours"]];

const PAGE = 200;
const PAGES = 5;

/** How much of a window is looked at when all of it is too much: its end, where things still happen. */
const LATE = 1 / 8;

/**
 * Operations accepted in a window, at most 1,000: `{items, isComplete, isShortened, from, to}`. When there are more,
 * only the end of the window is looked at. `tell` gets the first of them early.
 */
export async function recentOperations(minutes, signal, tell = () => {}) {
  const all = await acceptedIn(minutes, signal, tell);
  return all.isComplete ? all : { ...(await acceptedIn(minutes * LATE, signal)), isShortened: true };
}

async function acceptedIn(minutes, signal, tell = () => {}) {
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

/** How many operations are running and waiting whenever accepted, as `{running, waiting}` of `{count, isAll}`. */
export async function presentOperations(signal) {
  const counts = {};
  for (const status of ["running", "waiting_retry", "waiting_circuit"]) {
    // One after the other: each may go through thousands of operations on the server's side.
    const { items, next_cursor: cursor } = await get("operations", { status, limit: PAGE }, signal);
    counts[status] = { count: items.length, isAll: cursor === null };
  }
  const [retry, circuit] = [counts.waiting_retry, counts.waiting_circuit];
  return { running: counts.running, waiting: { count: retry.count + circuit.count, isAll: retry.isAll && circuit.isAll } };
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
