// Alerts: what is raised, who receives alerts, and what was lately.

import { get, post } from "../api.js";
import { h, link, toast } from "../dom.js";
import { ago, duration, number, when, words } from "../format.js";
import { table } from "../lists.js";
import { badge, button, card, circuitLink, facts } from "../pieces.js";

const NAMES = {
  dead_letters: "Open dead letters",
  dead_letter_age_seconds: "Age of the oldest open dead letter",
  outbox_lag_seconds: "Wait of the oldest event that is not sent",
  circuit_open_seconds: "Circuit open",
  retries_exhausted_per_hour: "Retries exhausted per hour",
  lane_blocked_seconds: "Lane of an order key blocked by a dead letter",
  not_starting: "Accepted operations do not begin",
  task_hub_away_seconds: "The task hub does not answer",
};

export function alertsView() {
  return {
    title: "Alerts",
    load: (signal) => get("alerts", {}, signal),
    render: (all) => [raised(all), recent(all), settings(all)],
  };
}

function raised({ items, receivers }) {
  if (!items.length) return card("Raised now", h("p", { class: "empty" }, "Nothing is over its threshold."));
  const columns = [
    { name: "What", class: "wide", cell: (one) => h("span", {}, one.text, " ", place(one), runbook(one)) },
    { name: "Since", cell: (one) => ago(one.raised_at) },
    { name: "Messages", class: "wide", cell: (one) => (receivers.length ? messages(one) : h("span", { class: "dim" }, "log only")) },
  ];
  return card("Raised now", table("Raised alerts", columns, items, { keyOf: (one) => one.condition }));
}

/** Where a person looks next. */
export function place(one) {
  if (one.dependency) return circuitLink(one.dependency);
  if (one.condition === "not_starting") return h("a", { href: link("operations", { status: "pending" }) }, "Look at them");
  if (one.condition === "lane_blocked_seconds") return h("a", { href: link("lanes", { blocked: "true" }) }, "Look at them");
  if (one.condition === "task_hub_away_seconds") return null;
  const [path, query] = one.condition === "outbox_lag_seconds" ? ["outbox", {}] : ["dead-letters", { status: "open" }];
  const reason = one.condition === "retries_exhausted_per_hour" ? { reason: "RetriesExhausted" } : {};
  return h("a", { href: link(path, { ...query, ...reason }) }, "Look at them");
}

/** What to do, where the app says so. */
const runbook = (one) => (one.runbook_url ? [" ", h("a", { href: one.runbook_url, rel: "noreferrer" }, "Runbook")] : null);

function messages(one) {
  if (!one.deliveries.length) return h("span", { class: "dim" }, "not sent yet");
  const line = (message) => h("li", { data: { key: message.receiver } }, badge(message.state), words(message.receiver),
    message.detail ? h("small", { class: "dim" }, message.detail) : null);
  return h("ul", { class: "lines" }, one.deliveries.map(line));
}

/** A condition in words: `circuit_open_seconds:payments` as `Circuit open, payments`. */
export const named = (condition) => {
  const [kind, dependency] = condition.split(":");
  return [NAMES[kind] ?? kind, dependency].filter(Boolean).join(", ");
};

function recent({ recent: ended }) {
  const columns = [
    { name: "What", class: "wide", cell: (one) => one.text },
    { name: "Raised", cell: (one) => when(one.raised_at) },
    { name: "Cleared", cell: (one) => when(one.cleared_at) },
  ];
  return card("Lately", table("Incidents that ended", columns, ended, { keyOf: (one) => `${one.condition} ${one.raised_at}`, empty: "No incident has ended lately." }));
}

/** Send a message to every receiver that says that it is a test, and say what became of it. */
async function tryReceivers() {
  try {
    const { items } = await post("alerts/test");
    const failed = items.filter((one) => one.detail);
    toast(failed.length ? failed.map((one) => `${words(one.receiver)}: ${one.detail}`).join(" ") : "The test arrived everywhere.", failed.length ? "bad" : "good");
  } catch (error) {
    toast([error.message, ...error.lines].join(" "), "bad");
  }
}

/** Whether the value of a condition is a time; that of one dependency is as its kind. */
const isTime = (condition) => condition.split(":")[0].endsWith("_seconds") || condition === "not_starting";

function settings({ thresholds, receivers }) {
  const value = ([condition, limit]) => (limit === 0 ? "off" : isTime(condition) ? `over ${duration(limit)}` : `over ${number(limit)}`);
  const list = receivers.length
    ? h("ul", { class: "lines" }, receivers.map((one) => h("li", {}, words(one.receiver), h("span", { class: "dim" }, one.host))))
    : h("p", { class: "empty" }, "Nobody: alerts are in the log only. ALERT_WEBHOOK_URL and ALERT_SLACK_URL name receivers.");
  return h("div", { class: "pair", data: { key: "settings" } },
    card("Thresholds", facts(Object.entries(thresholds).map((pair) => [named(pair[0]), value(pair)]))), card("Receivers", list, { more: receivers.length ? button("Send a test", tryReceivers, "quiet") : null }));
}
