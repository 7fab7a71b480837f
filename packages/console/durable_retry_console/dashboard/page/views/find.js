// What somebody asks about, among everything, by one search; one operation that matches is answered at once.

import { h, link } from "../dom.js";
import { said, until, words } from "../format.js";
import { column, CREATED, created, DEPENDENCY, filters, listView, ORIGIN, SHARED, STATUS } from "../lists.js";
import { badge, card, circuitLink, clip, correlationLink, cutLink, deadLetterLink, empty, operationLink, short, STATES, untilWords } from "../pieces.js";

const TYPES = [["operation", "Operations"], ["dead_letter", "Dead letters"], ["event", "Events"], ["batch", "Batches"], ["saga", "Sagas"], ["bulk_action", "Bulk actions"], ["activity", "Activity"]];
const PLACES = { operation: "operations", dead_letter: "dead-letters", batch: "batches", saga: "sagas", bulk_action: "bulk-actions" };
/** The states of every type that is found. */
const STATUSES = [...STATES, "open", "replayed", "archived", "sent", "failed", "completed", "compensating", "compensated", "compensation_failed", "stopped", "action", "bulk", "circuit", "deployment", "settings"];
const FILTERS = [
  { name: "type", label: "Type", choices: TYPES, clears: ["status"] },
  { name: "status", label: "Status", suggest: STATUSES },
  { name: "dependency", label: "Dependency" },
  ...created("Created", { more: true }),
  ...ORIGIN,
  ...SHARED,
];
const COLUMNS = [
  column("type", "Type", words),
  STATUS,
  { name: "What", class: "wide", cell: whatCell, text: (one) => one.key ?? one.name ?? one.id },
  DEPENDENCY,
  column("correlation_id", "Correlation", correlationLink),
  { name: "Why", class: "wide", cell: whyCell, text: whyOf },
  CREATED,
  { name: "Id", text: (one) => one.id },
];

function whatCell(one) {
  const name = one.key ?? one.name ?? short(one.id);
  // An event is shown with the operation that sent it.
  if (one.type === "activity") return h("a", { href: link("activity", { q: one.id }) }, name);
  const href = one.type === "event" ? (one.operation_id ? `operations/${encodeURIComponent(one.operation_id)}` : "outbox") : `${PLACES[one.type]}/${encodeURIComponent(one.id)}`;
  return cutLink(link(href), name, one.key ?? one.id);
}

function whyOf(one) {
  return one.why ?? one.error ?? "";
}

function whyCell(one) {
  return h("div", {}, clip(whyOf(one)), one.next_attempt_at ? h("small", { class: "countdown" }, untilWords(one.status), until(one.next_attempt_at)) : null);
}

export function findView(route) {
  const { query } = route;
  const asked = query.q ?? "";
  const list = listView(route, {
    title: asked ? `“${asked}”` : "Find", list: "search", file: "found", filters: FILTERS, besides: [{ name: "q" }], columns: COLUMNS, seconds: 15,
    keyOf: (one) => `${one.type}-${one.id}-${one.created_at}`, nothing: "No match.",
    above: (page) => (asked ? answer(asked, page.items) : null),
  });
  if (["q", ...FILTERS.map(({ name }) => name)].some((name) => query[name])) return list;
  return { ...list, load: () => null, render: () => [filters(route.path, query, FILTERS), empty("Type a key, a correlation id, an id or words of an error above, or choose a filter.")] };
}

/** Why the one operation that somebody asks about is where it is; nothing where several match. */
function answer(asked, items) {
  const operations = items.filter((one) => one.type === "operation");
  const named = operations.filter((one) => [one.key, one.id, one.correlation_id].includes(asked));
  const one = named.length === 1 ? named[0] : operations.length === 1 ? operations[0] : null;
  if (!one) return null;
  const letter = one.dead_letter_id ? deadLetterLink(one.dead_letter_id, "Its dead letter, to replay it") : null;
  return card("Where it is", [
    h("p", { class: "answer" }, badge(one.status), " ", operationLink(one.id, one.key), attempts(one), " at ", circuitLink(one.dependency)),
    whyOf(one) ? h("p", { class: "why" }, said(whyOf(one))) : null,
    one.next_attempt_at ? h("p", {}, words(untilWords(one.status)), until(one.next_attempt_at), ".") : null,
  ], { more: letter });
}

const attempts = (one) => h("span", { class: "dim" }, one.attempt_count === 1 ? " after 1 attempt" : ` after ${one.attempt_count} attempts`);
