// Batches and sagas: each kind as a list, and one by one.

import { doing } from "../acting.js";
import { addressOf, get, segment } from "../api.js";
import { h, link } from "../dom.js";
import { ago, number, plural, until, when, words } from "../format.js";
import { column, counts, filters, inFile, listView, named, pagedTable, textColumn } from "../lists.js";
import { badge, batchLink, card, copier, deadLetterLink, facts, figure, FINISHED, headline, linesCard, linkButton, mono, operationLink, progressBar, sagaLink, STATES, untilWords, WAITING, whyWaiting } from "../pieces.js";

const SHOWN = 200;
/** An operation of the built-in target, to be replaced by one's own. */
const TEST = { dependency: "flaky", request: { method: "POST", path: "/echo" } };
const example = (path, body) => `curl ${addressOf(path)} -H 'Content-Type: application/json' -H "x-functions-key: $DURABLE_RETRY_KEY" -d '${JSON.stringify(body)}'`;
const ITEMS = [
  column("index", "#", number, "number"),
  column("status", "Status", (status) => badge(status)),
  column("key", "Key", (key, one) => operationLink(one.operation_id, key), "wide"),
  textColumn("Error", (one) => text(one.error)),
];

const text = (error) => (error === null || error === undefined ? "" : typeof error === "string" ? error : error.detail ?? JSON.stringify(error));

const BY_KEY = [{ name: "key", label: "Key" }];
const count = (name, of) => ({ name, class: "number", cell: (one) => number(of(one.counts)), text: (one) => of(one.counts) });

const BATCHES = [
  column("status", "Status", (status) => badge(status)),
  column("batch_id", "Batch", (id, one) => batchLink(id, one.key), "wide"),
  ...inFile("key"),
  { ...count("Ended", endedOf), cell: ({ counts: all }) => `${number(endedOf(all))} of ${number(all.total)}` },
  count("Succeeded", (all) => all.succeeded),
  count("Failed", failedOf),
  column("created_at", "Started", ago),
  column("finished_at", "Finished", ago),
];

function failedOf(counts) {
  return counts.dead_lettered + counts.cancelled;
}

function endedOf(counts) {
  return FINISHED.reduce((sum, state) => sum + counts[state], 0);
}

export const batchesView = (route) => listView(route, {
  title: "Batches", list: "batches", filters: BY_KEY, columns: BATCHES, keyOf: (one) => one.batch_id,
  nothing: () => ["No batch was submitted. ", copier("Copy a curl that submits one", example("batches", { items: [TEST, TEST] }))],
});

// A batch: how far it is, and its items, what failed before what goes on.

/** States in the order in which a person looks at them. */
const WORST_FIRST = ["dead_lettered", "cancelled", "waiting_circuit", "waiting_throttle", "waiting_retry", "paused", "waiting_order", "running", "scheduled", "pending", "succeeded"];

export function batchView({ id, path, query }) {
  return {
    title: "Batch",
    load: (signal) => get(`batches/${segment(id)}`, {}, signal),
    render: (batch) => [
      headline([badge(batch.status ?? "running"), batch.key ? h("strong", { class: "key" }, batch.key) : null, mono(batch.batch_id)],
        batch.counts.dead_lettered ? linkButton("Replay the failed…", "bulk-actions/new", { batch_id: batch.batch_id }) : null),
      verdict(batch),
      h("div", { class: "batch-progress", data: { key: "progress" } }, progressBar("Progress of the batch", endedOf(batch.counts), batch.counts.total, " ended")),
      h("div", { class: "figures", data: { key: "figures" } }, STATES.filter((state) => batch.counts[state]).map((state) =>
        figure(number(batch.counts[state]), words(state).toLowerCase(), { kind: `is-${state}`, href: link(path, { ...query, cursor: null, status: state }) }))),
      filters(path, query, [{ name: "status", label: "State", choices: named(STATES.filter((state) => batch.counts[state] || state === query.status)) }, { name: "q", label: "Key or error" }]),
      items(batch, path, query),
      about(batch),
    ],
  };
}

/** Why the batch counts as failed; nothing while it does not. */
function verdict({ status, counts, tolerated_failures: tolerated }) {
  const failed = failedOf(counts);
  if (failed <= tolerated) return null;
  const parts = [["dead_lettered", "became dead letters"], ["cancelled", "were cancelled"]].filter(([state]) => counts[state]).map(([state, did]) => `${number(counts[state])} ${did}`);
  const words = status === "failed" ? "It counts as failed" : "It will count as failed";
  const most = tolerated ? `more than the ${number(tolerated)} that it tolerates` : "and it tolerates none";
  return h("p", { class: "detail", data: { key: "verdict" } }, `${words}: of ${plural(counts.total, "item")} ${parts.join(" and ")}, ${most}.`);
}

function items(batch, path, query) {
  const asked = (query.q ?? "").toLowerCase();
  const found = batch.items.filter((one) => (!query.status || one.status === query.status) && `${one.key} ${text(one.error)}`.toLowerCase().includes(asked));
  found.sort((a, b) => WORST_FIRST.indexOf(a.status) - WORST_FIRST.indexOf(b.status) || a.index - b.index);
  const from = Math.max(0, Number(query.cursor) || 0);
  const shown = found.slice(from, from + SHOWN);
  const next = from + SHOWN < found.length ? String(from + SHOWN) : null;
  return pagedTable("Items", ITEMS, { items: shown, next_cursor: next }, { path, query, file: "batch", keyOf: (one) => String(one.index), nothing: "No item matches." });
}

function about(batch) {
  return card("About", facts([
    ["Started", when(batch.created_at)], ["Finished", batch.finished_at ? when(batch.finished_at) : null],
    ["Most at once", number(batch.max_concurrency)], ["Failures tolerated", number(batch.tolerated_failures)],
  ]));
}

const SAGAS = [
  { name: "Status", cell: sagaBadge, text: (one) => one.status },
  column("saga_id", "Saga", (id, one) => sagaLink(id, one.key), "wide"),
  ...inFile("key"),
  { name: "Steps", class: "wide", cell: stepWords, text: stepWords },
  column("created_at", "Started", ago),
  column("updated_at", "Changed", ago),
];

const UNDONE = { undone: "Undone", none: "Nothing to undo", unknown: "Effect unknown" };

/** The state of a saga: of one whose step failed, what is left of it and why. */
function sagaBadge({ status, reason, effect }) {
  if (!reason) return badge(status);
  return badge(status, `${status === "compensated" ? UNDONE[effect] : words(status)}: ${reason}`);
}

/** The state of a step, in which one that was undone is no success. */
const stepState = ({ status, effect }) => (effect === "undone" ? "undone" : status);

function stepWords(saga) {
  return saga.steps.map((step) => `${step.name} ${words(stepState(step)).toLowerCase()}`).join(", ");
}

export const sagasView = (route) => listView(route, {
  title: "Sagas", list: "sagas", filters: BY_KEY, columns: SAGAS, keyOf: (one) => one.saga_id,
  nothing: () => ["No saga was submitted. ", copier("Copy a curl that submits one", example("sagas", { steps: [{ name: "first", operation: TEST, compensation: TEST }] }))],
});

const EFFECTS = { stands: "still stands", unknown: "may or may not have taken effect" };

/** The states in which a saga can be run again. */
const RESTARTABLE = ["compensated", "compensation_failed"];

export function sagaView({ id, reload }) {
  const path = `sagas/${segment(id)}`;
  return {
    title: "Saga",
    load: (signal) => withPresent(path, signal),
    render: (saga) => [
      headline([sagaBadge(saga), saga.key ? h("strong", { class: "key" }, saga.key) : null, mono(saga.saga_id)],
        RESTARTABLE.includes(saga.status) ? doing(path, reload, restart(saga)) : null),
      card("Steps", h("ol", { class: "lines" }, (saga.steps ?? []).map((step) => sagaStep(step, saga.present)))),
      card("About", facts([["Started", when(saga.created_at)], ["Changed", when(saga.updated_at)], ["Effect not known", saga.unknown?.join(", ")]])),
      restarts(saga),
    ],
  };
}

const restart = ({ steps }) => ({
  what: "restart", label: "Restart…", action: "Restart it", kind: "main", title: "Run this saga again?", words: "Steps that stand are kept. Dead letters of what runs again are archived.",
  fields: [
    { name: "from_step", label: "From", optional: true, choices: [["", "where it failed"], ...steps.map(({ name }) => [name, name])], hint: "A chosen step, and those behind it, run again even if they stand." },
    ...steps.filter(isUndoneInDoubt).map(({ name }) => ({ name: `${CONFIRMED}${name}`, label: `${name}: what you found at the dependency`, optional: true,
      choices: [["", "not known"], ["undone", "it is undone"], ["stands", "it was not undone"]], hint: "Its compensation may have taken effect. Kept with the restart." })),
    { name: "note", label: "Why", optional: true },
  ],
  bodyOf: ({ from_step, note, ...found }) => {
    const confirmed = Object.entries(found).map(([name, value]) => [name.slice(CONFIRMED.length), value]);
    return { from_step, note, ...(confirmed.length ? { confirmed: Object.fromEntries(confirmed) } : {}) };
  },
  done: ({ runs }) => (runs.length ? `Running ${runs.join(", ")} again.` : "Every step still stands: nothing runs again."),
});

const CONFIRMED = "confirmed.";
const isUndoneInDoubt = ({ effect, compensation }) => effect === "unknown" && ["dead_lettered", "cancelled"].includes(compensation?.status);

const confirmations = ({ confirmed }) => Object.entries(confirmed ?? {}).map(([step, found]) => `, who found that ${step} ${found === "undone" ? "is undone" : "stands"}`).join("");

/** Who ran it again, the latest first. */
function restarts(saga) {
  const line = (each) => h("li", {}, h("span", {}, `Ran ${each.runs.join(", ") || "no step"} again`, each.by ? ` for ${each.by}` : "", confirmations(each), each.note ? `: ${each.note}` : ""), h("span", { class: "spread" }), ago(each.requested_at));
  return linesCard("Restarts", saga.restarts?.toReversed(), line, { key: "restarts" });
}

/** The saga, with the operation that runs: a saga does one thing at a time. Null where nothing runs or nobody can tell. */
async function withPresent(path, signal) {
  const saga = await get(path, {}, signal);
  const running = (saga.steps ?? []).flatMap((step) => [step, step.compensation]).find((part) => part?.status === "running");
  if (!running) return saga;
  const present = await get(`operations/${segment(running.operation_id)}`, {}, signal).catch((error) => {
    if (error.status === 0) throw error;
    return null;
  });
  return { ...saga, present };
}

function sagaStep(step, present) {
  const effect = EFFECTS[step.effect] ? h("span", { class: "dim" }, ` ${EFFECTS[step.effect]}`) : null;
  const undoing = step.compensation?.status ? step.compensation : null;
  return h("li", { class: "stack" },
    h("span", {}, partState({ ...step, status: stepState(step) }, present), " ", operationLink(step.operation_id, step.name), effect), waitOf(step, present),
    undoing ? [h("small", {}, undoing.status === "succeeded" ? "undone by " : "to be undone by ", operationLink(undoing.operation_id, "its compensation"), " ", partState(undoing, present)), waitOf(undoing, present)] : null,
    failure(step), failure(undoing));
}

/** How an operation of a saga failed, with its dead letter, where it can be replayed. */
function failure(part) {
  if (!part?.error) return null;
  const letter = part.dead_letter_id ? [" ", deadLetterLink(part.dead_letter_id, "Its dead letter, to replay it")] : null;
  return h("small", { class: "dim" }, text(part.error), letter);
}

/** The state of a step or a compensation; that of the operation where it runs. */
const partState = (part, present) => badge(present?.operation_id === part.operation_id ? present.status : part.status);

/** What the operation that runs waits for. */
function waitOf(part, present) {
  if (present?.operation_id !== part.operation_id || !WAITING.includes(present.status)) return null;
  const why = whyWaiting(present);
  return h("small", { class: "countdown" }, why ? `${why}; ` : null, untilWords(present.status), until(present.next_attempt_at));
}
