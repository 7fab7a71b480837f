// What somebody asks about, among everything, by one search; one operation that matches is answered at once.

import { get } from "../api.js";
import { h, link } from "../dom.js";
import { ago, until, words } from "../format.js";
import { filters, pageQuery, pager, SHARED, table } from "../lists.js";
import { badge, card, circuitLink, correlationLink, cutLink, deadLetterLink, operationLink, short, STATES, untilWords } from "../pieces.js";

const TYPES = [["operation", "Operations"], ["dead_letter", "Dead letters"], ["event", "Events"], ["batch", "Batches"], ["saga", "Sagas"], ["bulk_action", "Bulk actions"], ["activity", "Activity"]];
const PLACES = { operation: "operations", dead_letter: "dead-letters", batch: "batches", saga: "sagas", bulk_action: "bulk-actions" };
/** The states of every type that is found. */
const STATUSES = [...STATES, "open", "replayed", "archived", "sent", "failed", "completed", "compensating", "compensated", "compensation_failed", "stopped", "action", "bulk", "circuit", "deployment", "settings"];
const FILTERS = [
  { name: "type", label: "Type", choices: TYPES },
  { name: "status", label: "Status", suggest: STATUSES },
  { name: "dependency", label: "Dependency" },
  { name: "created_after", label: "Created after", instant: true },
  { name: "created_before", label: "Created before", instant: true, more: true },
  { name: "handler", label: "Handler", more: true },
  { name: "source", label: "Source", more: true },
  { name: "key", label: "Key", more: true },
  ...SHARED,
];
const COLUMNS = [
  { name: "Type", cell: (one) => words(one.type), text: (one) => one.type },
  { name: "Status", cell: (one) => badge(one.status), text: (one) => one.status },
  { name: "What", class: "wide", cell: whatCell, text: (one) => one.key ?? one.name ?? one.id },
  { name: "Dependency", cell: (one) => (one.dependency ? circuitLink(one.dependency) : "–"), text: (one) => one.dependency },
  { name: "Correlation", cell: (one) => correlationLink(one.correlation_id), text: (one) => one.correlation_id },
  { name: "Why", class: "wide", cell: whyCell, text: whyOf },
  { name: "Created", cell: (one) => ago(one.created_at), text: (one) => one.created_at },
  { name: "Id", class: "hidden", cell: () => "", text: (one) => one.id },
];
const SHOWN = COLUMNS.filter((column) => column.class !== "hidden");

function clip(text) {
  return h("span", { class: "clip", title: text }, text);
}

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

export function findView({ path, query }) {
  const asked = query.q ?? "";
  const names = ["q", ...FILTERS.map((filter) => filter.name)];
  const isAsked = names.some((name) => query[name]);
  return {
    title: asked ? `“${asked}”` : "Find",
    seconds: 15,
    load: (signal) => (isAsked ? get("search", pageQuery(query, names), signal) : null),
    render: (page) => [
      page && asked ? answer(asked, page.items) : null,
      filters(path, query, FILTERS),
      page ? found(path, query, page) : h("p", { class: "empty" }, "Type a key, a correlation id, an id or words of an error above, or choose a filter."),
    ],
  };
}

function found(path, query, page) {
  const empty = page.next_cursor ? "No match so far; the next page looks further." : "No match.";
  return [table("Found", SHOWN, page.items, { keyOf: (one) => `${one.type}-${one.id}-${one.created_at}`, empty }), pager(path, query, page, COLUMNS, "found")];
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
    whyOf(one) ? h("p", { class: "why" }, whyOf(one)) : null,
    one.next_attempt_at ? h("p", {}, words(untilWords(one.status)), until(one.next_attempt_at), ".") : null,
  ], { more: letter });
}

const attempts = (one) => h("span", { class: "dim" }, one.attempt_count === 1 ? " after 1 attempt" : ` after ${one.attempt_count} attempts`);
