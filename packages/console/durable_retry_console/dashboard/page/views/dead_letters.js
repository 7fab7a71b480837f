// Dead letters: by cause, as a list, and one by one.

import { act, notes } from "../acting.js";
import { get, segment } from "../api.js";
import { timeline } from "../charts.js";
import { go, h, link } from "../dom.js";
import { contentOf, editor } from "../editor.js";
import { ago, at, coarse, number, plural, until, when, words } from "../format.js";
import { filters, pageQuery, pager, SHARED, table } from "../lists.js";
import { ask, badge, button, card, circuitLink, correlationLink, deadLetterLink, facts, json, laneLink, mono, notice, operationLink, sharedLink } from "../pieces.js";
import { Paced } from "../poll.js";
import { CATEGORIES, named, onAll, REASONS, selection } from "./bulk.js";
import { causeLink, causeRows, failure, othersWords } from "./causes.js";

const FILTERS = [
  { name: "q", label: "Search" },
  { name: "status", label: "Status", choices: named(["open", "replayed", "archived"]) },
  { name: "reason", label: "Reason", choices: named(REASONS) },
  { name: "category", label: "Category", choices: named(CATEGORIES) },
  { name: "dependency", label: "Dependency" },
  { name: "created_after", label: "Created after", instant: true },
  { name: "created_before", label: "Created before", instant: true, more: true },
  { name: "group", label: "Group", more: true },
  { name: "key", label: "Key", more: true },
  ...SHARED,
];
const COLUMNS = [
  { name: "Status", cell: (one) => badge(one.status), text: (one) => one.status },
  { name: "Key", class: "wide", cell: (one) => deadLetterLink(one.id, one.key), text: (one) => one.key },
  { name: "Correlation", class: "roomy", cell: (one) => correlationLink(one.correlation_id), text: (one) => one.correlation_id },
  { name: "Reason", cell: (one) => words(one.reason), text: (one) => one.reason },
  { name: "Dependency", cell: (one) => one.dependency ?? "–", text: (one) => one.dependency },
  { name: "Detail", class: "wide", cell: (one) => h("span", { class: "clip", title: one.detail }, one.detail), text: (one) => one.detail },
  { name: "Created", cell: (one) => ago(one.created_at), text: (one) => one.created_at },
];
const FILE = [...COLUMNS, ...["id", "operation_id", "category", "group", "order_key", "debounce_key", "priority", "first_failed_at"].map((name) => ({ name, text: (one) => one[name] }))];

export function deadLettersView({ path, query, reload }) {
  const counted = new Paced((signal) => get("dead-letters/count", Object.fromEntries(COUNTED.map((name) => [name, query[name]])), signal), COUNT_SECONDS);
  const chosen = selection((one) => one.id, (one) => one.key, ["replay", "archive"], reload);
  return {
    title: "Dead letters",
    load: async (signal, update) => {
      const all = await load(query, signal);
      if (isCountable(query)) counted.ask(signal, () => update(all));
      return all;
    },
    render: ({ page, ...open }) => [
      isPlain(query) ? openCard(open) : null,
      filters(path, query, FILTERS),
      onAll(query, ["replay", "archive"]),
      chosen.bar(page.items.filter((one) => one.status === "open")),
      table("Dead letters", [chosen.column, ...COLUMNS], page.items, { keyOf: (one) => one.id, empty: page.next_cursor ? "No match so far; the next page looks further." : "No dead letter matches." }),
      pager(path, query, page, FILE, "dead-letters", counted.value?.count ?? null),
    ],
  };
}

// Words, keys and correlation ids are looked for in the dead letters themselves.
const SEARCHED = ["q", "key", "correlation_id"];
const COUNTED = FILTERS.map(({ name }) => name).filter((name) => !SEARCHED.includes(name));
const COUNT_SECONDS = 15;
const isCountable = (query) => !SEARCHED.some((name) => query[name]);
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
      h("ul", { class: "lines" }, Object.entries(summary.by_reason).map(line(words, "reason"))),
      h("ul", { class: "lines" }, Object.entries(summary.by_dependency).map(line((name) => name, "dependency"))))),
  ], { key: "summary" });
}

// One dead letter: what it was to do, what went wrong, and what a person does about it.

export function deadLetterView({ parameters: [id], query, path, reload }) {
  const place = `dead-letters/${segment(id)}`;
  return {
    title: "Dead letter",
    seconds: 2,
    load: (signal) => withOutcome(place, signal),
    render: (one) => [
      headline(one, place, path, query, reload),
      h("p", { class: "detail", data: { key: "detail" } }, one.detail),
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

/** Replay a dead letter without a change, once somebody has agreed. */
export async function replayAsItWas(one, place, reload) {
  const given = await ask({
    title: "Replay as it was?", words: "Under the same key, so the dependency still deduplicates it.", action: "Replay",
    fields: [
      ...(one.handler ? [{ name: "from_step", label: "From the step", optional: true, hint: "This step of the handler and those after it run again. Empty: what was remembered stays." }] : []),
      { name: "note", label: "Note", optional: true, hint: "Kept with the replay." },
    ],
  });
  if (given) act(place, "replay", Object.fromEntries(Object.entries(given).filter(([, text]) => text)), "Replaying.", reload);
}

function headline(one, place, path, query, reload) {
  const isOpen = one.status === "open";
  return h("div", { class: "headline", data: { key: "headline" } },
    h("div", { class: "headline-words" }, badge(one.status), h("strong", {}, words(one.reason)), h("span", { class: "key" }, one.key)),
    one.unreadable ? null : h("div", { class: "actions" },
      // The editor has a button of its own that replays, so that what is sent is what is seen.
      isOpen && !query.edit ? button("Replay", () => replayAsItWas(one, place, reload), "main") : null,
      isOpen ? h("a", { class: "button", href: link(path, query.edit ? {} : { edit: "1" }) }, query.edit ? "Stop editing" : "Edit and replay") : null,
      one.status === "archived"
        ? button("Restore", () => act(place, "restore", {}, "Restored.", reload))
        : button("Archive", () => act(place, "archive", {}, "Archived.", reload), "quiet")));
}

function content(one) {
  if (one.unreadable) return null;
  const { name, value } = contentOf(one);
  const isCut = name === "message" && one.message_chars > value.length;
  const cut = isCut ? h("p", { class: "problem" }, `Only the first ${number(value.length)} of ${number(one.message_chars)} characters were kept: edit it into the whole message to replay it.`) : null;
  return card({ request: "Request", input: `Input of ${one.handler}`, message: "Message" }[name], [cut, json(value)], { key: "content" });
}

function replays(one) {
  if (!one.replays.length) return null;
  const change = (edit) => h("li", {}, mono(edit.pointer), " ", h("del", {}, JSON.stringify(edit.before)), " → ", h("ins", {}, JSON.stringify(edit.after)));
  const line = (replay) => h("li", { class: "stack" },
    h("span", {}, operationLink(replay.operation_id, "Operation"), " ", ago(replay.requested_at), replay.by ? ` by ${replay.by}` : "", replay.note ? ` · ${replay.note}` : "",
      replay.action_id ? [" · ", h("a", { href: link(`bulk-actions/${segment(replay.action_id)}`) }, "bulk action")] : null,
      replay.dead_letter_id && replay.dead_letter_id !== one.id ? [" · ", deadLetterLink(replay.dead_letter_id, "failed again")] : null),
    replay.changes.length ? h("ul", {}, replay.changes.map(change)) : null);
  return card("Replays", h("ul", { class: "lines" }, one.replays.map(line)));
}

function about(one) {
  return card("About", facts([
    ["Dead letter", mono(one.id)],
    ["Operation", one.operation_id ? operationLink(one.operation_id) : null],
    ["Dependency", circuitLink(one.dependency)],
    ["Category", words(one.category)],
    ["Source", one.source],
    ["Group", causeLink(one.group, one.group)],
    ["Correlation", one.correlation_id ? correlationLink(one.correlation_id) : null],
    ...(one.order_key ? [["Order key", laneLink(one.order_key)]] : []),
    ...(one.debounce_key ? [["Debounce key", sharedLink("debounce_key", one.debounce_key)]] : []),
    ...(one.priority ? [["Priority", words(one.priority)]] : []),
    ["Replay of", one.replay_of ? deadLetterLink(one.replay_of) : null],
    ["First failed", when(one.first_failed_at)],
    ["Created", when(one.created_at)],
    ["Archived", one.archived_at ? [at(one.archived_at), one.archived_by ? ` by ${one.archived_by}` : ""] : null],
  ]));
}
