// Dead letters: by cause, as a list, and one by one.

import { doing, notes } from "../acting.js";
import { get, segment } from "../api.js";
import { timeline } from "../charts.js";
import { go, h, link } from "../dom.js";
import { changeList, contentOf, editor } from "../editor.js";
import { ago, at, coarse, number, plural, said, until, when, words } from "../format.js";
import { column, CREATED, created, DEPENDENCY, folded, inFile, LIMIT_KEY, listView, named, SHARED, STATUS, textColumn } from "../lists.js";
import { badge, bulkActionLink, card, causeLink, circuitLink, correlationLink, deadLetterLink, facts, headline, json, laneLink, lines, linesCard, linkButton, mono, notice, operationLink, sharedLink } from "../pieces.js";
import { Paced } from "../poll.js";
import { CATEGORIES, onAll, REASONS, selection } from "./bulk.js";
import { causeRows, failure, othersWords } from "./causes.js";

const FILTERS = [
  { name: "q", label: "Search" },
  { name: "status", label: "Status", choices: named(["open", "replayed", "archived"]) },
  { name: "reason", label: "Reason", choices: named(REASONS) },
  { name: "category", label: "Category", choices: named(CATEGORIES) },
  { name: "dependency", label: "Dependency" },
  ...created("Created", { more: true }),
  ...folded([{ name: "group", label: "Group" }]),
  ...SHARED,
];
const COLUMNS = [
  STATUS,
  column("key", "Key", (key, one) => deadLetterLink(one.id, key), "wide"),
  column("correlation_id", "Correlation", correlationLink, "roomy"),
  column("reason", "Reason", words),
  DEPENDENCY,
  LIMIT_KEY,
  textColumn("Detail", (one) => one.detail),
  CREATED,
  ...inFile("id", "operation_id", "category", "group", "order_key", "debounce_key", "priority", "first_failed_at"),
];
// Words, keys and correlation ids are looked for in the dead letters themselves.
const SEARCHED = ["q", "key", "correlation_id"];
const COUNTED = FILTERS.map(({ name }) => name).filter((name) => !SEARCHED.includes(name));
const COUNT_SECONDS = 15;
const ON_MANY = ["replay", "lookup", "archive", "restore"];

export function deadLettersView(route) {
  const { query, reload } = route;
  const isCountable = !SEARCHED.some((name) => query[name]);
  const isPlain = Object.keys(query).length === 0;
  const chosen = selection((one) => one.id, ON_MANY, reload);
  const count = new Paced((signal) => get("dead-letters/count", Object.fromEntries(COUNTED.map((name) => [name, query[name]])), signal), COUNT_SECONDS);
  const list = listView(route, {
    title: "Dead letters", list: "dead-letters", filters: FILTERS, columns: [chosen.column, ...COLUMNS], keyOf: (one) => one.id, nothing: "No dead letter matches.",
    total: () => count.value?.count ?? null,
    later: isCountable ? { count } : {},
    above: (page) => (isPlain ? openCard(page) : null),
    tools: (page) => [onAll(query, ON_MANY), chosen.bar(page.items.filter((one) => one.status !== "replayed"))],
  });
  return isPlain ? { ...list, load: (signal) => withOpen(list.load(signal), signal) } : list;
}

/** The first page, with the causes of all that are open. */
async function withOpen(page, signal) {
  const quietly = (path, query = {}) => get(path, query, signal).catch((error) => ({ error }));
  const [first, groups, summary] = await Promise.all([page, quietly("dead-letters/groups", { limit: 20 }), quietly("dead-letters/summary")]);
  return { ...first, groups, summary };
}

const SHOWN = 6;

/** How many are open, by cause; by reason and dependency where somebody looks closer. */
function openCard({ groups, summary }) {
  if (summary.error ?? groups.error) return card("Open", notice(summary.error ?? groups.error));
  if (!summary.open) return null;
  const [shown, others] = [groups.items.slice(0, SHOWN), groups.items.slice(SHOWN)];
  const line = (name, query) => ([value, part]) => h("li", {}, h("a", { href: link("dead-letters", { status: "open", [query]: value }) }, name(value)),
    h("span", { class: "spread" }), h("strong", {}, number(part.open)), h("small", { class: "dim" }, `oldest ${coarse(part.oldest_age_seconds ?? 0)}`));
  return card(`${summary.complete ? "" : "at least "}${plural(summary.open, "open dead letter")}, the oldest ${coarse(summary.oldest_age_seconds ?? 0)} old`, [
    causeRows(shown),
    others.length ? h("details", { data: { key: "others" } }, h("summary", {}, othersWords(others.length), plural(others.reduce((sum, one) => sum + one.count, 0), "dead letter")), causeRows(others)) : null,
    groups.next_cursor ? h("p", { class: "dim" }, `These are the ${groups.items.length} largest causes.`) : null,
    h("details", { data: { key: "kinds" } }, h("summary", {}, "By reason and dependency"), h("div", { class: "pair" },
      lines(Object.entries(summary.by_reason), line(words, "reason")),
      lines(Object.entries(summary.by_dependency), line((name) => name, "dependency")))),
  ], { key: "summary" });
}

// One dead letter: what it was to do, what went wrong, and what a person does about it.

export function deadLetterView({ id, query, path, reload }) {
  const place = `dead-letters/${segment(id)}`;
  return {
    title: "Dead letter",
    seconds: 2,
    load: (signal) => withOutcome(place, signal),
    render: (one) => [
      head(one, place, path, query, reload),
      h("p", { class: "detail", data: { key: "detail" } }, said(one.detail)),
      outcome(one), failure(one),
      query.edit && one.status === "open" && !one.unreadable ? editor(one, place, { done: () => go(path) }) : content(one),
      one.attempts.length ? card("Attempts", timeline({ ...one, operation_id: null })) : null,
      replays(one), notes(one, place, reload), about(one),
    ],
  };
}

/** The dead letter and, once it was replayed, the operation that replays it; null while nobody can tell. */
async function withOutcome(place, signal) {
  const one = await get(place, {}, signal);
  const last = one.replays.at(-1);
  if (one.status !== "replayed" || !last || last.dead_letter_id) return one;
  const operation = await get(`operations/${segment(last.operation_id)}`, {}, signal).catch((error) => {
    if (error.status === 0) throw error;
    return null;
  });
  return { ...one, operation };
}

/** How the latest replay goes, or went; a replayed event is judged by itself: its operation has long succeeded. */
function outcome(one) {
  const last = one.replays.at(-1);
  if (one.status !== "replayed" || !last) return null;
  const { operation } = one;
  const event = operation?.events?.find((sent) => sent.event_id === one.request?.event?.id);
  const state = last.dead_letter_id ? "dead_lettered" : (event?.state ?? operation?.status);
  const attempts = operation && !event && !last.dead_letter_id ? plural(operation.attempt_count, "attempt") : null;
  return card("Outcome of the replay", h("p", { class: "replay-outcome", role: "status" },
    state ? badge(state) : h("span", { class: "dim" }, "No longer known"),
    attempts ? h("span", {}, attempts) : null,
    operation?.next_attempt_at ? h("span", { class: "countdown" }, "next attempt ", until(operation.next_attempt_at)) : null,
    operationLink(last.operation_id, "Look at the operation"),
    last.dead_letter_id ? deadLetterLink(last.dead_letter_id, "Look at the new dead letter") : null), { key: "outcome" });
}

/** The button that replays a dead letter without a change, once somebody has agreed. */
export const replayButton = (one, place, reload) => doing(place, reload, {
  what: "replay", label: "Replay", done: "Replaying.", kind: "main",
  title: "Replay as it was?", words: "It is sent under the same key: a dependency that deduplicates recognises it.",
  fields: [
    ...(one.handler ? [{ name: "from_step", label: "From the step", optional: true, hint: "This step of the handler and those after it run again. Empty: finished steps do not run again." }] : []),
    { name: "note", label: "Note", optional: true, hint: "Kept with the replay." },
  ],
});

/** The button that has the dependency asked; where it cannot be, the app says so. */
const lookupButton = (one, reload) => doing(`operations/${segment(one.operation_id)}`, reload, {
  what: "lookup", label: "Look up", done: "Asking.",
  title: "Ask whether it happened?", words: "The dependency is asked, and nothing is sent. If it happened, the operation has succeeded.",
});

export const archiveButton = (place, reload) => doing(place, reload, { what: "archive", label: "Archive", done: "Archived.", kind: "quiet" });

function head(one, place, path, query, reload) {
  const isOpen = one.status === "open";
  return headline([badge(one.status), h("strong", {}, words(one.reason)), h("span", { class: "key" }, one.key)], one.unreadable ? [] : [
    // The editor has a button of its own that replays, so that what is sent is what is seen.
    isOpen && !query.edit ? replayButton(one, place, reload) : null,
    isOpen && one.category === "ambiguous" && one.operation_id ? lookupButton(one, reload) : null,
    isOpen ? linkButton(query.edit ? "Stop editing" : "Edit and replay", path, query.edit ? {} : { edit: "1" }) : null,
    one.status === "archived" ? doing(place, reload, { what: "restore", label: "Restore", done: "Restored." }) : archiveButton(place, reload),
  ]);
}

function content(one) {
  if (one.unreadable) return null;
  const { name, value } = contentOf(one);
  const isCut = name === "message" && one.message_chars > value.length;
  const cut = isCut ? h("p", { class: "problem" }, `Only the first ${number(value.length)} of ${number(one.message_chars)} characters were kept: edit it into the whole message to replay it.`) : null;
  return card({ request: "Request", input: `Input of ${one.handler}`, message: "Message" }[name], [cut, json(value)], { key: "content" });
}

function replays(one) {
  const line = (replay) => h("li", { class: "stack" },
    h("span", {}, operationLink(replay.operation_id, "Operation"), " ", ago(replay.requested_at), replay.by ? ` by ${replay.by}` : "", replay.note ? ` · ${replay.note}` : "",
      replay.action_id ? [" · ", bulkActionLink(replay.action_id, "bulk action")] : null,
      replay.dead_letter_id && replay.dead_letter_id !== one.id ? [" · ", deadLetterLink(replay.dead_letter_id, "failed again")] : null),
    changeList(replay.changes));
  return linesCard("Replays", one.replays, line);
}

function about(one) {
  return card("About", facts([
    ["Dead letter", mono(one.id)],
    ["Operation", one.operation_id && operationLink(one.operation_id)],
    ["Dependency", circuitLink(one.dependency)],
    ["Category", words(one.category)],
    ["Source", one.source],
    ["Group", causeLink(one.group)],
    ["Correlation", one.correlation_id && correlationLink(one.correlation_id)],
    ["Order key", one.order_key && laneLink(one.order_key)],
    ["Limit key", one.limit_key && sharedLink("limit_key", one.limit_key)],
    ["Debounce key", one.debounce_key && sharedLink("debounce_key", one.debounce_key)],
    ["Priority", one.priority && words(one.priority)],
    ["Replay of", one.replay_of && deadLetterLink(one.replay_of)],
    ["First failed", when(one.first_failed_at)],
    ["Created", when(one.created_at)],
    ["Archived", one.archived_at ? [at(one.archived_at), one.archived_by ? ` by ${one.archived_by}` : ""] : null],
  ]));
}
