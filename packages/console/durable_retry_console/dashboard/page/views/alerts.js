// Alerts: what is raised, who receives alerts, and what was lately.

import { doing } from "../acting.js";
import { get } from "../api.js";
import { h, link } from "../dom.js";
import { ago, duration, number, said, when, words } from "../format.js";
import { column, table } from "../lists.js";
import { badge, card, circuitLink, empty, facts, lines } from "../pieces.js";

const NAMES = {
  dead_letters: "Open dead letters",
  dead_letter_age_seconds: "Age of the oldest open dead letter",
  outbox_lag_seconds: "Age of the oldest event that is not sent",
  circuit_open_seconds: "Circuit not closed",
  paused_seconds: "Paused at its own request",
  credential_refused_seconds: "Credential refused",
  retries_exhausted_per_hour: "Retries exhausted per hour",
  stuck_seconds: "Orchestrations do not go on",
  lane_blocked_seconds: "Lane of an order key blocked by a dead letter",
  not_starting: "Accepted operations do not begin",
  held: "Operations held by their policies",
  lacking_seconds: "Operations wait for what this app does not have",
  task_hub_away_seconds: "The task hub does not answer",
};

export function alertsView({ reload }) {
  return {
    title: "Alerts",
    load: (signal) => get("alerts", {}, signal),
    render: (all) => [raised(all), recent(all), settings(all, reload)],
  };
}

function raised({ items, receivers }) {
  if (!items.length) return card("Raised now", empty("Nothing is over its threshold."));
  const columns = [
    { name: "What", class: "wide", cell: (one) => h("span", {}, said(one.text), " ", place(one), runbook(one)) },
    column("raised_at", "Since", ago),
    { name: "Messages", class: "wide", cell: (one) => (receivers.length ? messages(one) : h("span", { class: "dim" }, "log only")) },
  ];
  return card("Raised now", table("Raised alerts", columns, items, { keyOf: (one) => one.condition }));
}

/** Where a person looks next. */
export function place(one) {
  if (one.dependency) return circuitLink(one.dependency);
  if (one.condition === "held") return h("a", { href: link("operations", { status: "paused" }) }, "Look at them");
  if (one.condition === "not_starting") return h("a", { href: link("operations", { status: "pending" }) }, "Look at them");
  if (one.condition === "lane_blocked_seconds") return h("a", { href: link("lanes", { blocked: "true" }) }, "Look at them");
  if (["task_hub_away_seconds", "stuck_seconds", "lacking_seconds"].includes(one.condition)) return null;
  const [path, query] = one.condition === "outbox_lag_seconds" ? ["outbox", {}] : ["dead-letters", { status: "open" }];
  const reason = one.condition === "retries_exhausted_per_hour" ? { reason: "RetriesExhausted" } : {};
  return h("a", { href: link(path, { ...query, ...reason }) }, "Look at them");
}

/** What to do, where the app says so. */
const runbook = (one) => (one.runbook_url ? [" ", h("a", { href: one.runbook_url, rel: "noreferrer" }, "Runbook")] : null);

function messages(one) {
  if (!one.deliveries.length) return h("span", { class: "dim" }, one.state === "cleared" ? "log only" : "not sent yet");
  const line = (message) => h("li", { data: { key: `${message.receiver} ${message.about}` } }, badge(message.state), words(message.receiver),
    one.state === "cleared" ? h("small", { class: "dim" }, `that it is ${message.about}`) : null,
    message.detail ? h("small", { class: "dim" }, message.detail) : null);
  return lines(one.deliveries, line);
}

/** A condition in words: `circuit_open_seconds:payments` as `Circuit not closed, payments`. */
export const named = (condition) => {
  const [kind, dependency] = condition.split(":");
  return [NAMES[kind] ?? kind, dependency].filter(Boolean).join(", ");
};

function recent({ recent: ended }) {
  const columns = [
    column("text", "What", undefined, "wide"),
    column("raised_at", "Raised", when),
    column("cleared_at", "Cleared", when),
    { name: "Messages", class: "wide", cell: messages },
  ];
  return card("Ended lately", table("Incidents that ended", columns, ended, { keyOf: (one) => `${one.condition} ${one.raised_at}`, nothing: "No incident has ended lately." }));
}

/** Sends a message to every receiver that says that it is a test. */
const TRY = { what: "test", label: "Send a test", kind: "quiet", done: ({ items }) => {
  const failed = items.filter((one) => one.detail);
  if (failed.length) throw new Error(failed.map((one) => `${words(one.receiver)}: ${one.detail}`).join(" "));
  return "The test arrived everywhere.";
} };

/** Whether the value of a condition is a time; that of one dependency is as its kind. */
const isTime = (condition) => condition.split(":")[0].endsWith("_seconds") || ["not_starting", "held"].includes(condition);

function settings({ thresholds, receivers }, reload) {
  const value = ([condition, limit]) => (limit === 0 ? "off" : isTime(condition) ? `over ${duration(limit)}` : `over ${number(limit)}`);
  const list = lines(receivers, (one) => h("li", {}, words(one.receiver), h("span", { class: "dim" }, one.host)))
    ?? empty("None: alerts are in the log only. The app settings ALERT_WEBHOOK_URL and ALERT_SLACK_URL name receivers.");
  return h("div", { class: "pair", data: { key: "settings" } },
    card("Thresholds", facts(Object.entries(thresholds).map((pair) => [named(pair[0]), value(pair)]))), card("Receivers", list, { more: receivers.length ? doing("alerts", reload, TRY) : null }));
}
