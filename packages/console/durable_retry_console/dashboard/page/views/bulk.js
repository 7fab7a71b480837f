// Acting on many: choose by a filter or a selection, count, start, watch, cancel, resume.

import { attempt, doing } from "../acting.js";
import { get, getSeldom, post, remove, segment } from "../api.js";
import { go, h, toast } from "../dom.js";
import { ago, at, atLeast, coarse, number, until, when, words } from "../format.js";
import { column, counts, created, filters, inFile, listView, named, pagedTable, pageQuery, STATUS, textColumn, TURN } from "../lists.js";
import { ask, badge, batchLink, bulkActionLink, button, card, causeLink, deadLetterLink, eventLink, facts, FINISHED, headline, linesCard, linkButton, loading, notice, operationLink, progressBar, STATES } from "../pieces.js";
import { Paced } from "../poll.js";
import { changeCard, changeWords, patchCard, patchOf, previewCard, typedChange } from "./change.js";

/** What can be changed of an operation before it goes on; `changeOf` makes the body of it. */
export const CHANGES = [
  { name: "reason", label: "Why", optional: true },
  { name: "max_attempts", label: "Attempts, at most", type: "number", min: 1, optional: true, hint: "At most as many as its dependency allows. Left empty, this and what follows stay as they are." },
  { name: "initial_seconds", label: "First wait, in seconds", type: "number", min: 0, step: "any", optional: true },
  { name: "deadline_seconds", label: "Deadline, in seconds from then on", type: "number", min: 0, optional: true, hint: "0 for none." },
  { name: "priority", label: "Priority", optional: true, choices: [["", "as it is"], ["high", "high"], ["normal", "normal"], ["low", "low"]] },
];

/** What was typed into `CHANGES`, as a resume takes it; anything else as it is. */
export function changeOf({ max_attempts, initial_seconds, ...rest }) {
  const retry = { ...(max_attempts === undefined ? {} : { max_attempts }), ...(initial_seconds === undefined ? {} : { initial_seconds }) };
  return { ...rest, ...(Object.keys(retry).length ? { retry } : {}) };
}

const NOTE = { name: "note", label: "Note", optional: true, hint: "Kept with each dead letter." };

/** What an action is called, is done to, and does. */
export const ACTIONS = {
  replay: { verb: "Replay", did: "Replayed", one: "open dead letter", list: "dead-letters", kind: "main", meets: "open", fields: [
    NOTE,
    { name: "probe", label: "Sends", optional: true, choices: [["", "1, then 5, then the rest; stops where most fail again"], ["false", "all of them"]] }],
    says: "Every open dead letter that matches is replayed under its own key, no faster than the rate, and never through an open circuit." },
  lookup: { verb: "Look up", did: "Asked about", one: "ambiguous dead letter", list: "dead-letters", kind: "main", meets: "open", fields: [NOTE], fits: (one) => one.category === "ambiguous" || one.reason === "AmbiguousOutcome",
    says: "The dependency of each is asked whether it happened, and nothing is sent. What happened counts as succeeded; the others become dead letters again, with the answer." },
  archive: { verb: "Archive", did: "Archived", one: "open dead letter", list: "dead-letters", kind: "danger", meets: "open", fields: [NOTE],
    says: "Every open dead letter that matches is archived. It can be restored until it is removed." },
  restore: { verb: "Restore", did: "Restored", one: "archived dead letter", list: "dead-letters", kind: "main", meets: "archived", fields: [NOTE],
    says: "Every archived dead letter that matches goes back to where it was: open, or replayed." },
  cancel: { verb: "Cancel", did: "Cancelled", one: "operation", list: "operations", kind: "danger",
    says: "Every operation that matches and has not ended is cancelled. An attempt under way ends first; what a dependency has done is not undone." },
  retry_now: { verb: "Retry now", did: "Retried now", one: "operation", list: "operations", kind: "main",
    says: "Every operation that matches and waits makes its next attempt at once. What a circuit or a pause holds only waits again: close the circuit, or end the pause." },
  pause: { verb: "Pause", did: "Paused", one: "operation", list: "operations", kind: "main", fields: [
    { name: "reason", label: "Why", optional: true },
    { name: "for_seconds", label: "For how many seconds", type: "number", min: 1, optional: true, hint: "Until it is resumed, if left empty." },
    { name: "stops_deadline", label: "Deadline", optional: true, choices: [["", "keeps running"], ["true", "stops while it is paused"]] }],
    says: "Every operation that matches and has not ended does nothing until it is resumed. An attempt under way ends first." },
  resume: { verb: "Resume", did: "Resumed", one: "paused operation", list: "operations", kind: "main", fields: CHANGES,
    says: "Every paused operation that matches goes on, changed if you like." },
};
export const REASONS = ["RetriesExhausted", "DeadlineExceeded", "AmbiguousOutcome", "RejectedByDependency", "RejectedByHandler", "MalformedJson",
  "ValidationFailed", "UnknownDependency", "PoisonMessage", "OutboxUndeliverable", "CompensationFailed", "CircuitOpen"];
export const CATEGORIES = ["transient", "throttled", "ambiguous", "malformed", "unauthorized", "not_found", "business_rule", "circuit_open", "deadline_exceeded"];
const LETTERS = [
  { name: "reason", label: "Reason", choices: named(REASONS) },
  { name: "category", label: "Category", choices: named(CATEGORIES) },
  { name: "dependency", label: "Dependency" },
  ...created(),
  { name: "group", label: "Group" },
  ...TURN,
];
const UNFINISHED = named(STATES.filter((state) => !FINISHED.includes(state)));
const OPERATIONS = [{ name: "status", label: "State", choices: UNFINISHED }, { name: "dependency", label: "Dependency" }, ...created("Accepted"), ...TURN];
const filtersOf = (action) => (ACTIONS[action].list === "operations" ? OPERATIONS : LETTERS);

/** The menu to act on all that a list shows, or null where an action cannot be narrowed as the list is. */
export function onAll(query, actions) {
  const { cursor, ...filter } = query;
  const known = filtersOf(actions[0]).map((one) => one.name);
  if (ACTIONS[actions[0]].meets) {
    const { status = "open" } = filter;
    actions = actions.filter((action) => ACTIONS[action].meets === status);
    if (!actions.length) return null;
    delete filter.status;
  }
  const isOver = filter.status && !UNFINISHED.some(([state]) => state === filter.status);
  if (isOver || Object.keys(filter).some((name) => !known.includes(name))) return null;
  const to = (action) => linkButton(`${ACTIONS[action].verb}…`, "bulk-actions/new", { action, ...filter });
  return h("details", { class: "menu", data: { key: "bulk" } }, h("summary", { class: "button" }, "All matching"),
    h("div", { class: "actions" }, actions.filter((action) => ACTIONS[action].fits?.(filter) ?? true).map(to), linkButton("Bulk actions so far", "bulk-actions", {}, "quiet")));
}

/** Check boxes for a table, and the line that acts on what is checked. */
export function selection(idOf, actions, reload) {
  const chosen = new Set();
  const toggle = (id) => (event) => {
    if (event.target.checked) chosen.add(id);
    else chosen.delete(id);
    reload();
  };
  const box = (one) => h("input", { type: "checkbox", class: "select", "aria-label": `Select ${one.key}`, on: { change: toggle(idOf(one)) } });
  const bar = (items) => {
    const ids = items.map(idOf).filter((id) => chosen.has(id));
    if (!ids.length) return null;
    // Read when it is pressed: a box may have been checked since this was drawn.
    const to = (action) => button(`${ACTIONS[action].verb} selected…`, () => go("bulk-actions/new", { action, ids: [...chosen].join(",") }));
    const some = actions.filter((action) => items.some((one) => chosen.has(idOf(one)) && one.status === (ACTIONS[action].meets ?? one.status) && (ACTIONS[action].fits?.(one) ?? true)));
    return h("p", { class: "actions", data: { key: "selected" }, role: "status" }, h("strong", {}, `${number(ids.length)} selected`), some.map(to));
  };
  return { column: { name: "Select", cell: box, isBare: true }, bar };
}

const ENDED = ["completed", "cancelled"];
const COLUMNS = [
  STATUS,
  column("action", "Action", (action, one) => bulkActionLink(one.action_id, ACTIONS[action].verb), "wide"),
  ...counts("matched", "succeeded", "failed_again", "under_way", "refused"),
  column("by", "By"),
  column("note", "Note", undefined, "wide"),
  column("created_at", "Started", ago),
  ...inFile("action_id"),
];

export const bulkActionsView = (route) => listView(route, { title: "Bulk actions", list: "bulk-actions", columns: COLUMNS, keyOf: (one) => one.action_id, nothing: "No bulk action was started." });

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
  const { verb, one, list, kind, meets, fields = [] } = ACTIONS[action];
  const many = atLeast(matched, complete);
  const start = async () => {
    const typed = action === "replay" ? typedChange() : null;
    if (typed?.wrong) return toast(typed.wrong, "bad");
    const patch = [...(body.patch ?? []), ...(typed ? [typed] : [])];
    const meant = [`${words(many)} `, whichWords(body, cause), patch.length ? [", with: ", patch.map(changeWords).join(", then ")] : "", `. At most ${rate} a second. You can cancel it while it runs.`];
    const given = await ask({ title: `${verb}: ${many} ${matched === 1 ? one : `${one}s`}?`, words: meant, fields, action: `${verb} ${many}`, kind });
    if (!given) return;
    const started = await attempt(() => post("bulk-actions", { ...body, ...(patch.length ? { patch } : {}), rate_per_second: rate, ...changeOf(given) }), () => null);
    if (started) go(`bulk-actions/${segment(started.action_id)}`);
  };
  const estimate = matched ? `They would take ${complete ? "about" : "more than"} ${coarse(Math.max(1, matched / rate))}.` : "There is nothing to do.";
  const filter = meets ? { ...body.filter, status: meets } : body.filter;
  return card("Dry run", [h("p", { class: "lead", role: "status" }, h("strong", {}, `${words(many)} ${matched === 1 ? one : `${one}s`}`), body.batch_id ? [" of the batch ", batchLink(body.batch_id), ". "] : body.ids ? " selected. " : " match. ", estimate),
    matched ? h("div", { class: "actions" }, button(`${verb} ${many}…`, start, kind), body.filter ? linkButton("Look at them", list, filter, "quiet") : null) : null]);
}

const RESULTS = [
  column("outcome", "Outcome", (outcome) => badge(outcome)),
  column("key", "Key", (key, { id }) => (id.startsWith("dl-") ? deadLetterLink : operationLink)(id, key), "wide"),
  { name: "Became", class: "wide", cell: became, text: (one) => one.event_id ?? one.operation_id },
  { name: "Now", cell: standing, text: (one) => one.status },
  textColumn("Why", (one) => one.detail),
  column("at", "When", ago),
  ...inFile("id", "failed_again"),
];
const ITEMS_SECONDS = 5; // The API asks for the operation of each.

function became(one) {
  if (one.event_id) return eventLink(one.event_id);
  return one.operation_id && one.operation_id !== one.id ? operationLink(one.operation_id) : h("span", { class: "dim" }, "–");
}

function standing(one) {
  if (!one.status) return h("span", { class: "dim" }, "–");
  return one.failed_again ? h("span", {}, badge(one.status), " ", deadLetterLink(one.failed_again, "failed again")) : badge(one.status);
}

export function bulkActionView({ id, path: address, query, reload }) {
  const path = `bulk-actions/${segment(id)}`;
  const items = new Paced((signal) => get(`${path}/items`, pageQuery(query), signal), ITEMS_SECONDS);
  return {
    title: "Bulk action",
    seconds: 1,
    tabOf: (one) => ACTIONS[one.action].list,
    later: { items },
    load: (signal) => withCause(path, signal),
    render: (one) => [head(one, path, reload), one.error ? notice({ message: one.error }) : null, progress(one), patchCard(one.patch), failures(one), results(items.value, address, query, one), about(one)],
  };
}

/** The bulk action, with its cause in words where it is of one. */
async function withCause(path, signal) {
  const one = await get(path, {}, signal);
  const group = one.filter?.group;
  const cause = group ? await getSeldom(`dead-letters/groups/${segment(group)}`, signal).catch(() => null) : null;
  return { ...one, cause: cause?.sample.detail ?? group };
}

function results(page, path, query, one) {
  // The items are asked for less often than the counts.
  if (!page || (!page.error && !page.items.length && one.matched > one.remaining)) return card("Items", loading());
  const nothing = one.status === "running" ? "Nothing was done yet." : "Nothing was done.";
  return card("Items", page.error ? notice(page.error) : pagedTable("Items", RESULTS, page, { path, query, file: "items", keyOf: (each) => each.id, nothing }));
}

function head(one, path, reload) {
  const cancel = async () => {
    if (!(await ask({ title: "Cancel the bulk action?", words: "What was done stays done; the rest stays as it is.", action: "Cancel it", kind: "danger" }))) return;
    await attempt(() => remove(path), () => "Cancelling.");
    reload();
  };
  const resume = doing(path, reload, { what: "resume", label: "Resume", done: "Resuming.", title: "Go on with the rest?", kind: "main",
    words: `It sends 1, then 5, then the rest of ${number(one.remaining)}, and stops again where most of them fail.` });
  return headline([badge(one.status), h("strong", {}, ACTIONS[one.action].verb), one.reason ? h("span", {}, one.reason) : null, one.waiting_until ? h("span", { class: "countdown" }, "the circuit is open, looking again ", until(one.waiting_until)) : null],
    ENDED.includes(one.status) ? null : [one.status === "stopped" ? resume : null, button("Cancel", cancel, "danger")]);
}

function progress(one) {
  return card("Progress", [
    progressBar("Progress of the bulk action", one.matched - one.remaining, one.matched),
    facts([[ACTIONS[one.action].did, number(one.started)], ["Succeeded", number(one.succeeded)], ["Failed again", number(one.failed_again)], ["Under way", number(one.under_way)], ["Counted", one.counted_at ? ago(one.counted_at) : null],
      ["Skipped", number(one.skipped)], ["Failed", number(one.failed)], ["Remaining", number(one.remaining)]]),
  ]);
}

function failures(one) {
  const to = ACTIONS[one.action].list === "operations" ? operationLink : deadLetterLink;
  return linesCard("Failed", one.failures, (failure) => h("li", {}, to(failure.id), h("span", { class: "dim" }, failure.detail)));
}

function about(one) {
  const filter = Object.entries(one.filter ?? {});
  return card("About", facts([
    ["Started", when(one.created_at)], ["By", one.by], ["Rate", `${one.rate_per_second} a second`], ["Note", one.note], ["Stops", one.stop_at_failed === null ? null : `where more than ${one.stop_at_failed * 100} % of the last 20 fail again`], ["Stopped", one.stopped_at ? when(one.stopped_at) : null], ...pauseFacts(one.pause), ["Selected", one.filter ? null : number(one.matched)],
    ...filter.map(([name, value]) => (name === "group" ? ["Cause", causeLink(value, one.cause)] : [words(name), name.startsWith("created_") ? at(value) : value])),
  ]));
}

const pauseFacts = (pause) => (pause ? [["Why", pause.reason], ["For", pause.for_seconds ? coarse(pause.for_seconds) : "until somebody resumes them"], ["Deadline", pause.stops_deadline ? "stops while they are paused" : "keeps running"]] : []);
