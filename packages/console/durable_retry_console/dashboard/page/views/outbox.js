// Follow-up events: what is pending, sent or failed, and one of them with its data and attempts.

import { doing } from "../acting.js";
import { get, segment } from "../api.js";
import { timeline } from "../charts.js";
import { h } from "../dom.js";
import { ago, at, number, until, when } from "../format.js";
import { column, created, folded, inFile, listView, named, textColumn } from "../lists.js";
import { badge, card, circuitLink, correlationLink, deadLetterLink, eventLink, facts, headline, json, mono, operationLink, short } from "../pieces.js";

const COLUMNS = [
  column("state", "State", (state) => badge(state)),
  column("type", "Type", (type, one) => eventLink(one.event_id, type), "wide"),
  { name: "To", cell: destination, text: destination },
  column("operation_id", "Operation", (id) => operationLink(id, short(id)), "roomy"),
  column("created_at", "Created", ago),
  column("attempt_count", "Attempts", (count) => (count === null ? "–" : number(count)), "number"),
  column("sent_at", "Sent", at),
  textColumn("Detail", (one) => one.detail),
  ...inFile("event_id"),
];
const FILTERS = [
  { name: "status", label: "Status", required: true, choices: named(["pending", "sent", "failed"]) },
  { name: "dependency", label: "Webhooks to" },
  { name: "key", label: "Key of the operation" },
  ...folded(created()),
];

function destination(one) {
  if (one.queue) return `queue ${one.queue}`;
  return one.dependency ? `${one.dependency} ${one.path ?? ""}` : "";
}

const resend = (one, reload) => doing(`outbox/${segment(one.event_id)}`, reload, { what: "resend", label: one.state === "pending" ? "Send now" : "Resend", done: "Sending it again.", kind: "quiet" });

export function outboxView({ path, query, reload }) {
  const again = { name: "Action", cell: (one) => (one.state === "pending" ? "–" : resend(one, reload)) };
  const isFiltered = FILTERS.some(({ name }) => name !== "status" && query[name]);
  return listView({ path, query: { status: "pending", ...query } }, {
    title: "Outbox", list: "outbox", filters: FILTERS, columns: [...COLUMNS, again], keyOf: (one) => one.event_id,
    nothing: `No event ${isFiltered ? "matches and " : ""}is ${query.status ?? "pending"}.`,
  });
}

// One event: what it carries, how often it was tried, when next, and why it is not sent.

export function eventView({ id, reload }) {
  return {
    title: "Event",
    load: (signal) => get(`outbox/${segment(id)}`, {}, signal),
    render: (one) => [
      headline([badge(one.state), h("strong", { class: "key" }, one.type),
        one.state === "pending" && one.next_attempt_at ? h("span", { class: "countdown" }, one.why ? `${one.why}; ` : null, "next attempt ", until(one.next_attempt_at)) : null],
      one.unreadable ? [] : resend(one, reload)),
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
