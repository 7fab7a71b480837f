// Acting on many: choose by a filter or a selection, count, start, watch, cancel.

import { get, post, remove, segment } from "../api.js";
import { go, h, link, toast } from "../dom.js";
import { ago, at, atLeast, coarse, number, percent, until, when, words } from "../format.js";
import { filters, pageQuery, pager, table, TURN } from "../lists.js";
import { ask, badge, batchLink, button, card, deadLetterLink, eventLink, facts, FINISHED, notice, operationLink, STATES } from "../pieces.js";
import { Paced } from "../poll.js";
import { changeCard, changeWords, patchCard, patchOf, previewCard, typedChange } from "./change.js";

/** What an action is called, is done to, and does. */
export const ACTIONS = {
  replay: { verb: "Replay", did: "Replayed", one: "open dead letter", list: "dead-letters", kind: "main",
    says: "Every open dead letter that matches is replayed under its own key, no faster than the rate, and never through an open circuit." },
  archive: { verb: "Archive", did: "Archived", one: "open dead letter", list: "dead-letters", kind: "danger",
    says: "Every open dead letter that matches is archived. It can be restored until it is removed." },
  cancel: { verb: "Cancel", did: "Cancelled", one: "operation", list: "operations", kind: "danger",
    says: "Every operation that matches and has not ended is cancelled. An attempt under way ends first; what a dependency has done is not undone." },
  retry_now: { verb: "Retry now", did: "Retried now", one: "operation", list: "operations", kind: "main",
    says: "The present wait of every waiting operation that matches ends; a circuit that is open still refuses it." },
  pause: { verb: "Pause", did: "Paused", one: "operation", list: "operations", kind: "main", fields: [
    { name: "reason", label: "Why", optional: true },
    { name: "for_seconds", label: "For how many seconds", type: "number", min: 1, optional: true, hint: "Until it is resumed, if left empty." },
    { name: "stops_deadline", label: "Deadline", optional: true, choices: [["", "goes on"], ["true", "stops meanwhile"]] }],
    says: "Every operation that matches and has not ended does nothing until it is resumed. An attempt under way ends first." },
  resume: { verb: "Resume", did: "Resumed", one: "paused operation", list: "operations", kind: "main",
    says: "Every paused operation that matches goes on." },
};
export const REASONS = ["RetriesExhausted", "DeadlineExceeded", "AmbiguousOutcome", "RejectedByDependency", "RejectedByHandler", "MalformedJson",
  "ValidationFailed", "UnknownDependency", "PoisonMessage", "OutboxUndeliverable", "CompensationFailed"];
export const CATEGORIES = ["transient", "throttled", "ambiguous", "malformed", "unauthorized", "not_found", "business_rule", "circuit_open", "deadline_exceeded"];
/** Names as choices of a filter. */
export const named = (names) => names.map((name) => [name, words(name)]);
const LETTERS = [
  { name: "reason", label: "Reason", choices: named(REASONS) }, { name: "category", label: "Category", choices: named(CATEGORIES) }, { name: "dependency", label: "Dependency" },
  { name: "created_after", label: "Created after", instant: true }, { name: "created_before", label: "Created before", instant: true },
  { name: "group", label: "Group" }, ...TURN,
];
const UNFINISHED = named(STATES.filter((state) => !FINISHED.includes(state)));
const OPERATIONS = [
  { name: "status", label: "State", choices: UNFINISHED }, { name: "dependency", label: "Dependency" },
  { name: "created_after", label: "Accepted after", instant: true }, { name: "created_before", label: "Accepted before", instant: true }, ...TURN,
];
const filtersOf = (action) => (ACTIONS[action].list === "operations" ? OPERATIONS : LETTERS);

/** The menu to act on all that a list shows, or null where an action cannot be narrowed as the list is. */
export function onAll(query, actions) {
  const { cursor, ...filter } = query;
  if (ACTIONS[actions[0]].list === "dead-letters") {
    if (filter.status && filter.status !== "open") return null;
    delete filter.status;
  }
  const known = filtersOf(actions[0]).map((one) => one.name);
  const isOver = filter.status && !UNFINISHED.some(([state]) => state === filter.status);
  if (isOver || Object.keys(filter).some((name) => !known.includes(name))) return null;
  const to = (action) => h("a", { class: "button", href: link("bulk-actions/new", { action, ...filter }) }, `${ACTIONS[action].verb}…`);
  return h("details", { class: "menu", data: { key: "bulk" } }, h("summary", { class: "button" }, "All matching"),
    h("div", { class: "actions" }, actions.map(to), h("a", { class: "button quiet", href: link("bulk-actions") }, "Bulk actions so far")));
}

/** Check boxes for a table, and the line that acts on what is checked. */
export function selection(idOf, nameOf, actions, reload) {
  const chosen = new Set();
  const toggle = (id) => (event) => {
    if (event.target.checked) chosen.add(id);
    else chosen.delete(id);
    reload();
  };
  const box = (one) => h("input", { type: "checkbox", class: "select", "aria-label": `Select ${nameOf(one)}`, on: { change: toggle(idOf(one)) } });
  const bar = (items) => {
    const ids = items.map(idOf).filter((id) => chosen.has(id));
    if (!ids.length) return null;
    // Read when it is pressed: a box may have been checked since this was drawn.
    const to = (action) => button(`${ACTIONS[action].verb} selected…`, () => go("bulk-actions/new", { action, ids: [...chosen].join(",") }));
    return h("p", { class: "actions", data: { key: "selected" }, role: "status" }, h("strong", {}, `${number(ids.length)} selected`), actions.map(to));
  };
  return { column: { name: "Select", cell: box, isBare: true }, bar };
}

const ENDED = ["completed", "cancelled"];
const COLUMNS = [
  { name: "Status", cell: (one) => badge(one.status), text: (one) => one.status },
  { name: "Action", class: "wide", cell: (one) => h("a", { href: link(`bulk-actions/${segment(one.action_id)}`), title: one.action_id }, ACTIONS[one.action].verb), text: (one) => one.action },
  { name: "Matched", class: "number", cell: (one) => number(one.matched), text: (one) => one.matched },
  { name: "Succeeded", class: "number", cell: (one) => number(one.succeeded), text: (one) => one.succeeded },
  { name: "Failed again", class: "number", cell: (one) => number(one.failed_again), text: (one) => one.failed_again },
  { name: "Under way", class: "number", cell: (one) => number(one.under_way), text: (one) => one.under_way },
  { name: "Refused", class: "number", cell: (one) => number(one.refused), text: (one) => one.refused },
  { name: "By", cell: (one) => one.by ?? "–", text: (one) => one.by },
  { name: "Note", class: "wide", cell: (one) => one.note ?? "–", text: (one) => one.note },
  { name: "Started", cell: (one) => ago(one.created_at), text: (one) => one.created_at },
];
const FILE = [...COLUMNS, { name: "action_id", text: (one) => one.action_id }];

export function bulkActionsView({ path, query }) {
  return {
    title: "Bulk actions",
    load: (signal) => get("bulk-actions", pageQuery(query, []), signal),
    render: (page) => [
      table("Bulk actions", COLUMNS, page.items, { keyOf: (one) => one.action_id, empty: "No bulk action was started." }),
      pager(path, query, page, FILE, "bulk-actions"),
    ],
  };
}

export function newBulkActionView({ path, query }) {
  const { rate = "5", action: asked, ids: listed, batch_id: batch, patch: _, ...filter } = query;
  const action = asked in ACTIONS ? asked : "replay";
  const ids = listed ? listed.split(",") : null;
  const known = filtersOf(action);
  const wanted = Object.fromEntries(Object.entries(filter).filter(([name]) => known.some((one) => one.name === name)));
  const patch = action === "replay" ? patchOf(query) : [];
  const body = { action, ...(batch ? { batch_id: batch } : ids ? { ids } : { filter: wanted }), ...(patch?.length ? { patch } : {}) };
  return {
    title: `${ACTIONS[action].verb} many`,
    tab: ACTIONS[action].list,
    seconds: 15,
    load: (signal) => dryRun(body, signal),
    render: (count) => [
      h("p", { class: "dim" }, ACTIONS[action].says),
      filters(path, query, [...(ids || batch ? [] : known), { name: "rate", label: "Rate, per second (default 5)" }]),
      action === "replay" ? changeCard(path, patch, count.sample) : null,
      count.error ? notice(count.error) : [startCard(count, action, body, Number(rate)), previewCard(count.preview, patch)],
    ],
  };
}

/** What an action would meet, with one of the dead letters that would be replayed and the cause that is chosen. */
async function dryRun(body, signal) {
  const quietly = (error) => {
    if (error.status === 0) throw error;
    return { error };
  };
  const count = await post("bulk-actions", { ...body, dry_run: true }).catch(quietly);
  const first = count.preview?.[0]?.id;
  const sample = first ? await get(`dead-letters/${segment(first)}`, {}, signal).catch(quietly) : null;
  const group = body.filter?.group;
  const cause = group ? await get(`dead-letters/groups/${segment(group)}`, {}, signal).catch(quietly) : null;
  return { ...count, sample: sample?.error ? null : sample, cause: cause?.sample?.detail ?? group };
}

/** Which are meant, in words: the cause where one is chosen, else what they have in common. */
function whichWords({ filter, ids, batch_id: batch }, cause) {
  if (batch) return `of the batch ${batch}`;
  if (ids) return "selected";
  const { group, ...rest } = filter;
  const common = Object.entries(rest).map(([name, value]) => `${name.replaceAll("_", " ")} ${name.startsWith("created_") ? at(value) : value}`);
  return ["of ", group ? h("em", {}, cause) : "all", common.length ? ` with ${common.join(", ")}` : ""];
}

function startCard({ matched, complete, cause }, action, body, rate) {
  const { verb, one, list, kind } = ACTIONS[action];
  const many = atLeast(matched, complete);
  const start = async () => {
    const typed = action === "replay" ? typedChange() : null;
    if (typed?.wrong) return toast(typed.wrong, "bad");
    const patch = [...(body.patch ?? []), ...(typed ? [typed] : [])];
    const meant = [`${words(many)} `, whichWords(body, cause), patch.length ? [", with: ", patch.map(changeWords).join(", then ")] : "", `. At most ${rate} a second. It can be cancelled on the way.`];
    const fields = ACTIONS[action].fields ?? (list === "operations" ? [] : [{ name: "note", label: "Note", optional: true, hint: "Kept with each dead letter." }]);
    const given = await ask({ title: `${verb}: ${many} ${matched === 1 ? one : `${one}s`}?`, words: meant, fields, action: `${verb} ${many}`, kind });
    if (!given) return;
    try {
      const { action_id: id } = await post("bulk-actions", { ...body, ...(patch.length ? { patch } : {}), rate_per_second: rate, ...optionsOf(given) });
      go(`bulk-actions/${segment(id)}`);
    } catch (error) {
      toast([error.message, ...error.lines].join(" "), "bad");
    }
  };
  const estimate = matched ? `They would take ${complete ? "about" : "more than"} ${coarse(Math.max(1, matched / rate))}.` : "There is nothing to do.";
  const filter = list === "dead-letters" ? { ...body.filter, status: "open" } : body.filter;
  return card("Dry run", [h("p", { class: "lead", role: "status" }, h("strong", {}, `${words(many)} ${matched === 1 ? one : `${one}s`}`), body.batch_id ? [" of the batch ", batchLink(body.batch_id), ". "] : body.ids ? " selected. " : " match. ", estimate),
    matched ? h("div", { class: "actions" }, button(`${verb} ${many}…`, start, kind), body.filter ? h("a", { class: "button quiet", href: link(list, filter) }, "Look at them") : null) : null]);
}

/** What was filled in, as the API takes it. */
export function optionsOf({ for_seconds: seconds, stops_deadline: stops, ...texts }) {
  const given = Object.fromEntries(Object.entries(texts).filter(([, text]) => text));
  return { ...given, ...(seconds ? { for_seconds: Number(seconds) } : {}), ...(stops ? { stops_deadline: true } : {}) };
}

const RESULTS = [
  { name: "Outcome", cell: (one) => badge(one.outcome), text: (one) => one.outcome },
  { name: "Item", class: "wide", cell: (one) => itemLink(one), text: (one) => one.id },
  { name: "Operation", class: "wide", cell: became, text: (one) => one.event_id ?? one.operation_id },
  { name: "Now", cell: standing, text: (one) => one.status },
  { name: "Why", class: "wide", cell: (one) => h("span", { class: "clip", title: one.detail ?? "" }, one.detail ?? ""), text: (one) => one.detail },
  { name: "When", cell: (one) => ago(one.at), text: (one) => one.at },
];
const RESULTS_FILE = [...RESULTS, { name: "failed_again", text: (one) => one.failed_again }];
const ITEMS_SECONDS = 5; // The API asks for the operation of each.

const itemLink = (one) => (one.id.startsWith("dl-") ? deadLetterLink(one.id) : operationLink(one.id));

function became(one) {
  if (one.event_id) return eventLink(one.event_id);
  return one.operation_id && one.operation_id !== one.id ? operationLink(one.operation_id) : h("span", { class: "dim" }, "–");
}

function standing(one) {
  if (!one.status) return h("span", { class: "dim" }, "–");
  return one.failed_again ? h("span", {}, badge(one.status), " ", deadLetterLink(one.failed_again, "failed again")) : badge(one.status);
}

export function bulkActionView({ parameters: [id], path: address, query, reload }) {
  const path = `bulk-actions/${segment(id)}`;
  const items = new Paced((signal) => get(`${path}/items`, pageQuery(query, []), signal), ITEMS_SECONDS);
  return {
    title: "Bulk action",
    seconds: 1,
    tabOf: (one) => ACTIONS[one.action].list,
    load: async (signal, update) => {
      const one = await get(path, {}, signal);
      items.ask(signal, () => update(one));
      return one;
    },
    render: (one) => [headline(one, path, reload), one.error ? notice({ message: one.error }) : null, progress(one), patchCard(one.patch), failures(one), results(items.value, address, query), about(one)],
  };
}

function results(page, address, query) {
  if (!page) return null;
  if (page.error) return card("Items", notice(page.error));
  return card("Items", [
    table("Items", RESULTS, page.items, { keyOf: (one) => one.id, empty: "Nothing was done yet." }),
    pager(address, query, page, RESULTS_FILE, "items"),
  ]);
}

function headline(one, path, reload) {
  const cancel = async () => {
    if (!(await ask({ title: "Cancel the bulk action?", words: "What was done stays done; the rest stays as it is.", action: "Cancel it", kind: "danger" }))) return;
    try {
      await remove(path);
      toast("Cancelling.");
    } catch (error) {
      toast(error.message, "bad");
    }
    reload();
  };
  return h("div", { class: "headline", data: { key: "headline" } },
    h("div", { class: "headline-words" }, badge(one.status), h("strong", {}, ACTIONS[one.action].verb), one.waiting_until ? h("span", { class: "countdown" }, "the circuit is open, looking again ", until(one.waiting_until)) : null),
    ENDED.includes(one.status) ? null : h("div", { class: "actions" }, button("Cancel", cancel, "danger")));
}

function progress(one) {
  const done = one.matched - one.remaining;
  const ratio = one.matched ? Math.min(1, done / one.matched) : 1;
  return card("Progress", [
    h("p", { class: "lead" }, h("strong", {}, number(done)), ` of ${number(one.matched)} (${percent(ratio)})`),
    h("progress", { max: "1", value: String(ratio), "aria-label": "Progress of the bulk action" }),
    facts([[ACTIONS[one.action].did, number(one.started)], ["Succeeded", number(one.succeeded)], ["Failed again", number(one.failed_again)], ["Under way", number(one.under_way)], ["Counted", one.counted_at ? ago(one.counted_at) : null],
      ["Skipped", number(one.skipped)], ["Failed", number(one.failed)], ["Remaining", number(one.remaining)]]),
  ]);
}

function failures(one) {
  if (!one.failures?.length) return null;
  const to = ACTIONS[one.action].list === "operations" ? operationLink : deadLetterLink;
  return card("Failed", h("ul", { class: "lines" }, one.failures.map((failure) => h("li", {}, to(failure.id), h("span", { class: "dim" }, failure.detail)))));
}

function about(one) {
  const filter = Object.entries(one.filter ?? {});
  return card("About", facts([
    ["Started", when(one.created_at)], ["By", one.by], ["Rate", `${one.rate_per_second} a second`], ["Note", one.note], ...pauseFacts(one.pause), ["Selected", one.filter ? null : number(one.matched)],
    ...filter.map(([name, value]) => [words(name), name.startsWith("created_") ? at(value) : value]),
  ]));
}

const pauseFacts = (pause) => (pause ? [["Why", pause.reason], ["For", pause.for_seconds ? coarse(pause.for_seconds) : "until somebody resumes them"], ["Deadline", pause.stops_deadline ? "stops meanwhile" : "goes on"]] : []);
