// Batches and sagas: each kind as a list, and one by one.

import { addressOf, get, segment } from "../api.js";
import { h, link } from "../dom.js";
import { ago, number, percent, words } from "../format.js";
import { badge, card, copier, facts, figure, filters, FINISHED, mono, operationLink, pageQuery, pager, STATES, table } from "../pieces.js";

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
  { name: "Batch", class: "wide", cell: (one) => h("a", { href: link(`batches/${segment(one.batch_id)}`) }, one.key ?? one.batch_id), text: (one) => one.batch_id },
  { name: "Key", class: "hidden", cell: () => "", text: (one) => one.key },
  { name: "Ended", class: "number", cell: (one) => `${number(endedOf(one.counts))} of ${number(one.counts.total)}`, text: (one) => endedOf(one.counts) },
  { name: "Succeeded", class: "number", cell: (one) => number(one.counts.succeeded), text: (one) => one.counts.succeeded },
  { name: "Started", cell: (one) => ago(one.created_at), text: (one) => one.created_at },
  { name: "Finished", cell: (one) => ago(one.finished_at), text: (one) => one.finished_at },
];

const endedOf = (counts) => FINISHED.reduce((sum, state) => sum + counts[state], 0);

export function batchesView({ path, query }) {
  return {
    title: "Batches",
    load: (signal) => get("batches", pageQuery(query, ["key"]), signal),
    render: (page) => [
      filters(path, query, BY_KEY),
      table("Batches", shownOf(BATCHES), page.items, { keyOf: (one) => one.batch_id, empty: ["No batch was submitted. ", copier("Copy a curl that submits one", example("batches", { items: [TEST, TEST] }))] }),
      pager(path, query, page, BATCHES, "batches"),
    ],
  };
}

export function batchView({ parameters: [id], path, query }) {
  return {
    title: "Batch",
    load: (signal) => get(`batches/${segment(id)}`, {}, signal),
    render: (batch) => [
      h("div", { class: "headline" }, h("div", { class: "headline-words" }, badge(batch.status ?? "running"), batch.key ? h("strong", { class: "key" }, batch.key) : null, mono(batch.batch_id))),
      progress(batch.counts),
      h("div", { class: "figures", data: { key: "figures" } }, STATES.filter((state) => batch.counts[state]).map((state) =>
        figure(number(batch.counts[state]), words(state).toLowerCase(), { kind: `is-${state}` }))),
      card("Items", table("Items", ITEMS, shownItems(batch, query), { keyOf: (one) => String(one.index) })),
      pager(path, query, { items: shownItems(batch, query), next_cursor: nextItem(batch, query) }, ITEMS, "batch"),
      about(batch),
    ],
  };
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
    ["Started", batch.created_at ? ago(batch.created_at) : null], ["Finished", batch.finished_at ? ago(batch.finished_at) : null],
    ["Most at once", number(batch.max_concurrency)], ["Failures tolerated", number(batch.tolerated_failures)],
  ]));
}

const first = (query) => Math.max(0, Number(query.cursor) || 0);
const shownItems = (batch, query) => batch.items.slice(first(query), first(query) + SHOWN);
const nextItem = (batch, query) => (first(query) + SHOWN < batch.items.length ? String(first(query) + SHOWN) : null);

const SAGAS = [
  { name: "Status", cell: (one) => badge(one.status), text: (one) => one.status },
  { name: "Saga", class: "wide", cell: (one) => h("a", { href: link(`sagas/${segment(one.saga_id)}`) }, one.key ?? one.saga_id), text: (one) => one.saga_id },
  { name: "Key", class: "hidden", cell: () => "", text: (one) => one.key },
  { name: "Steps", class: "wide", cell: stepWords, text: stepWords },
  { name: "Started", cell: (one) => ago(one.created_at), text: (one) => one.created_at },
  { name: "Changed", cell: (one) => ago(one.updated_at), text: (one) => one.updated_at },
];

function stepWords(saga) {
  return saga.steps.map((step) => `${step.name} ${words(step.status).toLowerCase()}`).join(", ");
}

export function sagasView({ path, query }) {
  return {
    title: "Sagas",
    load: (signal) => get("sagas", pageQuery(query, ["key"]), signal),
    render: (page) => [
      filters(path, query, BY_KEY),
      table("Sagas", shownOf(SAGAS), page.items, { keyOf: (one) => one.saga_id, empty: ["No saga was submitted. ", copier("Copy a curl that submits one", example("sagas", { steps: [{ name: "first", operation: TEST, compensation: TEST }] }))] }),
      pager(path, query, page, SAGAS, "sagas"),
    ],
  };
}

const EFFECTS = { stands: "still stands", undone: "was undone", unknown: "may or may not have taken effect" };

export function sagaView({ parameters: [id] }) {
  const step = (one) => h("li", { class: "stack" },
    h("span", {}, badge(one.status), " ", h("strong", {}, one.name), " ", operationLink(one.operation_id, one.key), one.effect && one.effect !== "none" ? h("span", { class: "dim" }, ` ${EFFECTS[one.effect] ?? words(one.effect).toLowerCase()}`) : null),
    one.compensation?.status ? h("small", {}, "undone by ", operationLink(one.compensation.operation_id, one.compensation.key), " ", badge(one.compensation.status)) : null,
    one.error ? h("small", { class: "dim" }, text(one.error)) : null);
  return {
    title: "Saga",
    load: (signal) => get(`sagas/${segment(id)}`, {}, signal),
    render: (saga) => [
      h("div", { class: "headline" }, h("div", { class: "headline-words" }, badge(saga.status), saga.key ? h("strong", { class: "key" }, saga.key) : null, mono(saga.saga_id))),
      card("Steps", h("ol", { class: "lines" }, (saga.steps ?? []).map(step))),
      card("About", facts([["Started", saga.created_at ? ago(saga.created_at) : null], ["Changed", saga.updated_at ? ago(saga.updated_at) : null], ["Effect not known", saga.unknown?.join(", ")]])),
    ],
  };
}
