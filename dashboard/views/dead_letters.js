// Dead letters: by cause, and as a list.

import { get } from "../api.js";
import { h } from "../dom.js";
import { ago, coarse, number, plural, words } from "../format.js";
import { filters, pageQuery, pager, table } from "../parts/list.js";
import { badge, card, deadLetterLink, notice } from "../parts/pieces.js";
import { link } from "../route.js";

const REASONS = ["RetriesExhausted", "DeadlineExceeded", "AmbiguousOutcome", "RejectedByDependency", "RejectedByHandler", "MalformedJson",
  "ValidationFailed", "UnknownDependency", "PoisonMessage", "OutboxUndeliverable", "CompensationFailed"];
const CATEGORIES = ["transient", "throttled", "ambiguous", "malformed", "unauthorized", "not_found", "business_rule", "circuit_open", "deadline_exceeded"];
const named = (names) => names.map((name) => [name, words(name)]);
const FILTERS = [
  { name: "status", label: "Status", choices: named(["open", "replayed", "archived"]) },
  { name: "reason", label: "Reason", choices: named(REASONS) },
  { name: "category", label: "Category", choices: named(CATEGORIES) },
  { name: "dependency", label: "Dependency" },
  { name: "group", label: "Group" },
  { name: "created_after", label: "Created after (UTC)", instant: true },
  { name: "created_before", label: "Created before (UTC)", instant: true },
];
const COLUMNS = [
  { name: "Status", cell: (one) => badge(one.status), text: (one) => one.status },
  { name: "Key", class: "wide", cell: (one) => deadLetterLink(one.id, one.key), text: (one) => one.key },
  { name: "Reason", cell: (one) => words(one.reason), text: (one) => one.reason },
  { name: "Dependency", cell: (one) => one.dependency ?? "–", text: (one) => one.dependency },
  { name: "Detail", class: "wide", cell: (one) => h("span", { class: "clip", title: one.detail }, one.detail), text: (one) => one.detail },
  { name: "Created", cell: (one) => ago(one.created_at), text: (one) => one.created_at },
];
const FILE = [...COLUMNS, ...["id", "operation_id", "category", "group", "correlation_id", "first_failed_at"].map((name) => ({ name, text: (one) => one[name] }))];

/** What a bulk replay can be narrowed by. */
export const REPLAY_FILTERS = FILTERS.filter((filter) => filter.name !== "status");

export function deadLettersView({ path, query }) {
  return {
    title: "Dead letters",
    load: (signal) => load(query, signal),
    render: ({ page, groups, summary }) => [
      isPlain(query) ? summaryCard(summary) : null,
      isPlain(query) ? groupCard(groups) : null,
      filters(path, query, FILTERS),
      replayLink(query),
      table("Dead letters", COLUMNS, page.items, { keyOf: (one) => one.id, empty: "No dead letter matches." }),
      pager(path, query, page, FILE, "dead-letters"),
    ],
  };
}

const isPlain = (query) => Object.keys(query).length === 0;

async function load(query, signal) {
  const quietly = (path, more = {}) => get(path, more, signal).catch((error) => ({ error }));
  const names = FILTERS.map((filter) => filter.name);
  const [page, groups, summary] = await Promise.all([
    get("dead-letters", pageQuery(query, names), signal),
    isPlain(query) ? quietly("dead-letters/groups", { limit: 20 }) : null,
    isPlain(query) ? quietly("dead-letters/summary") : null,
  ]);
  return { page, groups, summary };
}

function replayLink(query) {
  const { cursor, status, ...filter } = query;
  if (status && status !== "open") return null;
  return h("p", { class: "actions", data: { key: "bulk" } }, h("a", { class: "button", href: link("replays/new", filter) }, isPlain(query) ? "Replay many…" : "Replay all that match…"));
}

function summaryCard(summary) {
  if (summary.error) return card("Open", notice(summary.error));
  if (!summary.open) return null;
  const line = (name, query) => ([value, part]) => h("li", {}, h("a", { href: link("dead-letters", { status: "open", [query]: value }) }, name(value)),
    h("span", { class: "spread" }), h("strong", {}, number(part.open)), h("small", { class: "dim" }, `oldest ${coarse(part.oldest_age_seconds ?? 0)}`));
  return card(`${plural(summary.open, "open dead letter")}, the oldest ${coarse(summary.oldest_age_seconds ?? 0)} old`, h("div", { class: "pair" },
    h("div", {}, h("h3", {}, "By reason"), h("ul", { class: "lines" }, Object.entries(summary.by_reason).map(line(words, "reason")))),
    h("div", {}, h("h3", {}, "By dependency"), h("ul", { class: "lines" }, Object.entries(summary.by_dependency).map(line((name) => name, "dependency"))))), { key: "summary" });
}

function groupCard(groups) {
  if (groups.error) return card("By cause", notice(groups.error));
  if (!groups.items.length) return null;
  return card("By cause", table("Groups", [
    { name: "Open", class: "number", cell: (group) => number(group.count) },
    { name: "Cause", class: "wide", cell: (group) => h("a", { href: link("dead-letters", { status: "open", group: group.group }) }, `${words(group.sample.reason)} · ${group.sample.dependency ?? "no dependency"}`) },
    { name: "Sample", class: "wide", cell: (group) => h("span", { class: "clip", title: group.sample.detail }, group.sample.detail) },
    { name: "First seen", cell: (group) => ago(group.first_seen_at) },
    { name: "Last seen", cell: (group) => ago(group.last_seen_at) },
  ], groups.items, { keyOf: (group) => group.group }));
}
