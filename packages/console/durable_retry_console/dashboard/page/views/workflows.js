// Batches and sagas: each kind as a list, and one by one.

import { addressOf, get, post, segment } from "../api.js";
import { h, link, toast } from "../dom.js";
import { ago, number, percent, plural, until, when, words } from "../format.js";
import { filters, listView, pager, table } from "../lists.js";
import { ask, badge, batchLink, button, card, copier, deadLetterLink, facts, figure, FINISHED, mono, operationLink, sagaLink, STATES, untilWords, WAITING, whyWaiting } from "../pieces.js";

const SHOWN = 200;
/** An operation of the built-in target, to be replaced by one's own. */
const TEST = { dependency: "flaky", request: { method: "POST", path: "/echo" } };
const example = (path, body) => `curl ${addressOf(path)} -H 'Content-Type: application/json' -H "x-functions-key: $DURABLE_RETRY_KEY" -d '${JSON.stringify(body)}'`;
const ITEMS = [
  { name: "#", class: "number", cell: (one) => number(one.index), text: (one) => one.index },
  { name: "Status", cell: (one) => badge(one.status), text: (one) => one.status },
  { name: "Key", class: "wide", cell: (one) => operationLink(one.operation_id, one.key), text: (one) => one.key },
  { name: "Error", class: "wide", cell: (one) => h("span", { class: "clip", title: text(one.error) }, text(one.error)), text: (one) => text(one.error) },
];

const text = (error) => (error === null || error === undefined ? "" : typeof error === "string" ? error : error.detail ?? JSON.stringify(error));

const BY_KEY = [{ name: "key", label: "Key" }];
const shownOf = (columns) => columns.filter((column) => column.class !== "hidden");

const BATCHES = [
  { name: "Status", cell: (one) => badge(one.status), text: (one) => one.status },
  { name: "Batch", class: "wide", cell: (one) => batchLink(one.batch_id, one.key), text: (one) => one.batch_id },
  { name: "Key", class: "hidden", cell: () => "", text: (one) => one.key },
  { name: "Ended", class: "number", cell: (one) => `${number(endedOf(one.counts))} of ${number(one.counts.total)}`, text: (one) => endedOf(one.counts) },
  { name: "Succeeded", class: "number", cell: (one) => number(one.counts.succeeded), text: (one) => one.counts.succeeded },
  { name: "Failed", class: "number", cell: (one) => number(failedOf(one.counts)), text: (one) => failedOf(one.counts) },
  { name: "Started", cell: (one) => ago(one.created_at), text: (one) => one.created_at },
  { name: "Finished", cell: (one) => ago(one.finished_at), text: (one) => one.finished_at },
];

const failedOf = (counts) => counts.dead_lettered + counts.cancelled;
const endedOf = (counts) => FINISHED.reduce((sum, state) => sum + counts[state], 0);

export const batchesView = (route) => listView(route, {
  title: "Batches", list: "batches", filters: BY_KEY, columns: shownOf(BATCHES), file: BATCHES, keyOf: (one) => one.batch_id,
  nothing: () => ["No batch was submitted. ", copier("Copy a curl that submits one", example("batches", { items: [TEST, TEST] }))],
});

// A batch: how far it is, and its items, what failed before what goes on.

/** States in the order in which a person looks at them. */
const WORST_FIRST = ["dead_lettered", "cancelled", "waiting_circuit", "waiting_throttle", "waiting_retry", "paused", "waiting_order", "running", "scheduled", "pending", "succeeded"];

export function batchView({ parameters: [id], path, query }) {
  return {
    title: "Batch",
    load: (signal) => get(`batches/${segment(id)}`, {}, signal),
    render: (batch) => [
      h("div", { class: "headline" }, h("div", { class: "headline-words" }, badge(batch.status ?? "running"), batch.key ? h("strong", { class: "key" }, batch.key) : null, mono(batch.batch_id)),
        batch.counts.dead_lettered ? h("div", { class: "actions" }, h("a", { class: "button", href: link("bulk-actions/new", { batch_id: batch.batch_id }) }, "Replay the failed…")) : null),
      verdict(batch),
      progress(batch.counts),
      h("div", { class: "figures", data: { key: "figures" } }, STATES.filter((state) => batch.counts[state]).map((state) =>
        figure(number(batch.counts[state]), words(state).toLowerCase(), { kind: `is-${state}`, href: link(path, { ...query, cursor: null, status: state }) }))),
      filters(path, query, [{ name: "status", label: "State", choices: STATES.filter((state) => batch.counts[state] || state === query.status).map((state) => [state, words(state)]) }, { name: "q", label: "Key or error" }]),
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
  return [table("Items", ITEMS, shown, { keyOf: (one) => String(one.index), empty: "No item matches." }),
    pager(path, query, { items: shown, next_cursor: next }, ITEMS, "batch")];
}

function progress(counts) {
  const ended = endedOf(counts);
  const ratio = counts.total ? ended / counts.total : 1;
  return h("div", { class: "batch-progress", data: { key: "progress" } },
    h("p", { class: "lead" }, h("strong", {}, number(ended)), ` of ${number(counts.total)} ended (${percent(ratio)})`),
    h("progress", { max: "1", value: String(ratio), "aria-label": "Progress of the batch" }));
}

function about(batch) {
  return card("About", facts([
    ["Started", when(batch.created_at)], ["Finished", batch.finished_at ? when(batch.finished_at) : null],
    ["Most at once", number(batch.max_concurrency)], ["Failures tolerated", number(batch.tolerated_failures)],
  ]));
}

const SAGAS = [
  { name: "Status", cell: sagaBadge, text: (one) => one.status },
  { name: "Saga", class: "wide", cell: (one) => sagaLink(one.saga_id, one.key), text: (one) => one.saga_id },
  { name: "Key", class: "hidden", cell: () => "", text: (one) => one.key },
  { name: "Steps", class: "wide", cell: stepWords, text: stepWords },
  { name: "Started", cell: (one) => ago(one.created_at), text: (one) => one.created_at },
  { name: "Changed", cell: (one) => ago(one.updated_at), text: (one) => one.updated_at },
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
  title: "Sagas", list: "sagas", filters: BY_KEY, columns: shownOf(SAGAS), file: SAGAS, keyOf: (one) => one.saga_id,
  nothing: () => ["No saga was submitted. ", copier("Copy a curl that submits one", example("sagas", { steps: [{ name: "first", operation: TEST, compensation: TEST }] }))],
});

const EFFECTS = { stands: "still stands", unknown: "may or may not have taken effect" };

/** The states in which a saga can be run again. */
const RESTARTABLE = ["compensated", "compensation_failed"];

export function sagaView({ parameters: [id], reload }) {
  const path = `sagas/${segment(id)}`;
  return {
    title: "Saga",
    load: (signal) => withPresent(path, signal),
    render: (saga) => [
      h("div", { class: "headline" }, h("div", { class: "headline-words" }, sagaBadge(saga), saga.key ? h("strong", { class: "key" }, saga.key) : null, mono(saga.saga_id)),
        RESTARTABLE.includes(saga.status) ? h("div", { class: "actions" }, button("Restart…", () => restart(saga, path, reload), "main")) : null),
      card("Steps", h("ol", { class: "lines" }, (saga.steps ?? []).map((step) => sagaStep(step, saga.present)))),
      card("About", facts([["Started", when(saga.created_at)], ["Changed", when(saga.updated_at)], ["Effect not known", saga.unknown?.join(", ")]])),
      restarts(saga),
    ],
  };
}

async function restart(saga, path, reload) {
  const given = await ask({
    title: "Run this saga again?", action: "Restart it",
    words: "Steps that stand are kept. Dead letters of what runs again are archived.",
    fields: [
      { name: "from_step", label: "From", optional: true, choices: [["", "where it failed"], ...saga.steps.map((step) => [step.name, step.name])], hint: "A chosen step, and those behind it, run again even if they stand." },
      ...saga.steps.filter(isUndoneInDoubt).map(({ name }) => ({ name: `${CONFIRMED}${name}`, label: `${name}: what a look at the dependency has shown`, optional: true,
        choices: [["", "not known"], ["undone", "it is undone"], ["stands", "it stands, the compensation did nothing"]], hint: "Its compensation may have taken effect. Kept with the restart." })),
      { name: "note", label: "Why", optional: true },
    ],
  });
  if (!given) return;
  try {
    const filled = Object.entries(given).filter(([, value]) => value);
    const confirmed = filled.filter(([name]) => name.startsWith(CONFIRMED)).map(([name, value]) => [name.slice(CONFIRMED.length), value]);
    const body = Object.fromEntries(filled.filter(([name]) => !name.startsWith(CONFIRMED)));
    const done = await post(`${path}/restart`, confirmed.length ? { ...body, confirmed: Object.fromEntries(confirmed) } : body);
    toast(done.runs.length ? `Running ${done.runs.join(", ")} again.` : "Every step stands.");
  } catch (error) {
    toast([error.message, ...error.lines].join(" "), "bad");
  }
  reload();
}

const CONFIRMED = "confirmed.";
const isUndoneInDoubt = ({ effect, compensation }) => effect === "unknown" && ["dead_lettered", "cancelled"].includes(compensation?.status);

const confirmations = ({ confirmed }) => Object.entries(confirmed ?? {}).map(([step, found]) => `, who found that ${step} ${found === "undone" ? "is undone" : "stands"}`).join("");

/** Who ran it again, the latest first. */
function restarts(saga) {
  if (!saga.restarts?.length) return null;
  const line = (each) => h("li", {}, h("span", {}, `Ran ${each.runs.join(", ") || "no step"} again`, each.by ? ` for ${each.by}` : "", confirmations(each), each.note ? `: ${each.note}` : ""), h("span", { class: "spread" }), ago(each.requested_at));
  return card("Restarts", h("ul", { class: "lines" }, saga.restarts.toReversed().map(line)), { key: "restarts" });
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
