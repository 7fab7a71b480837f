// Follow-up events: what is pending, sent or failed, and one of them with its data and attempts.

import { act } from "../acting.js";
import { get, segment } from "../api.js";
import { timeline } from "../charts.js";
import { h } from "../dom.js";
import { ago, at, number, until, when, words } from "../format.js";
import { listView } from "../lists.js";
import { badge, button, card, circuitLink, correlationLink, deadLetterLink, eventLink, facts, json, mono, operationLink, short } from "../pieces.js";

const COLUMNS = [
  { name: "State", cell: (one) => badge(one.state), text: (one) => one.state },
  { name: "Type", class: "wide", cell: (one) => eventLink(one.event_id, one.type), text: (one) => one.type },
  { name: "To", cell: destination, text: destination },
  { name: "Operation", class: "roomy", cell: (one) => operationLink(one.operation_id, short(one.operation_id)), text: (one) => one.operation_id },
  { name: "Created", cell: (one) => ago(one.created_at), text: (one) => one.created_at },
  { name: "Attempts", class: "number", cell: (one) => (one.attempt_count === null ? "–" : number(one.attempt_count)), text: (one) => one.attempt_count },
  { name: "Sent", cell: (one) => at(one.sent_at), text: (one) => one.sent_at },
  { name: "Detail", class: "wide", cell: (one) => h("span", { class: "clip", title: one.detail }, one.detail ?? "–"), text: (one) => one.detail },
];
const FILTERS = [
  { name: "status", label: "Status", required: true, choices: ["pending", "sent", "failed"].map((state) => [state, words(state)]) },
  { name: "dependency", label: "Webhooks to" },
  { name: "key", label: "Key of the operation" },
  { name: "created_after", label: "Created after", instant: true, more: true },
  { name: "created_before", label: "Created before", instant: true, more: true },
];
const FILE = [...COLUMNS, { name: "event_id", text: (one) => one.event_id }];

function destination(one) {
  if (one.queue) return `queue ${one.queue}`;
  return one.dependency ? `${one.dependency} ${one.path ?? ""}` : "";
}

const resend = (one, reload) => button(one.state === "pending" ? "Send now" : "Resend", () => act(`outbox/${segment(one.event_id)}`, "resend", undefined, "Sending it again.", reload), "quiet");

/** What stands in place of an empty table: a filtered page may be empty though a later one is not. */
function nothing(query, page) {
  if (page.next_cursor) return "None of the first 1,000 events matches. The next page looks further.";
  return `No event ${FILTERS.some(({ name }) => name !== "status" && query[name]) ? "matches and " : ""}is ${query.status ?? "pending"}.`;
}

export function outboxView({ path, query, reload }) {
  const again = { name: "Action", cell: (one) => (one.state === "pending" ? "–" : resend(one, reload)) };
  return listView({ path, query: { status: "pending", ...query } }, {
    title: "Outbox", list: "outbox", filters: FILTERS, columns: [...COLUMNS, again], file: FILE, keyOf: (one) => one.event_id, nothing: (page) => nothing(query, page),
  });
}

// One event: what it carries, how often it was tried, when next, and why it is not sent.

export function eventView({ parameters: [id], reload }) {
  return {
    title: "Event",
    load: (signal) => get(`outbox/${segment(id)}`, {}, signal),
    render: (one) => [
      h("div", { class: "headline", data: { key: "headline" } },
        h("div", { class: "headline-words" }, badge(one.state), h("strong", { class: "key" }, one.type),
          one.state === "pending" && one.next_attempt_at ? h("span", { class: "countdown" }, one.why ? `${one.why}; ` : null, "next attempt ", until(one.next_attempt_at)) : null),
        one.unreadable ? null : h("div", { class: "actions" }, resend(one, reload))),
      h("p", { class: "detail", data: { key: "detail" } }, whyUnsent(one)),
      card("Data", json(one.data), { key: "content" }),
      one.attempts.length ? card("Attempts", timeline({ ...one, operation_id: null })) : null,
      about(one),
    ],
  };
}

function whyUnsent(one) {
  if (one.state === "sent") return null;
  if (one.state === "failed") return [one.detail, one.dead_letter_id ? [" ", deadLetterLink(one.dead_letter_id, "Look at the dead letter")] : null];
  if (one.attempts.length) return one.attempts.at(-1).error;
  return one.next_attempt_at ? "It has not been tried yet." : "It has not been tried yet: it is about to be, or waits for an earlier event to the same destination.";
}

function about(one) {
  return card("About", facts([
    ["Event", mono(one.event_id)], ["Operation", operationLink(one.operation_id)], ["To", one.queue ? `queue ${one.queue}` : [circuitLink(one.dependency), ` ${one.path ?? ""}`]],
    ["Attempts", one.attempt_count === null ? "none yet" : number(one.attempt_count)], ["Correlation", one.correlation_id ? correlationLink(one.correlation_id) : null],
    ["Created", when(one.created_at)], ["Pending since", one.state === "pending" ? ago(one.pending_since) : null],
    ["Sent", one.sent_at ? when(one.sent_at) : null],
  ]));
}
