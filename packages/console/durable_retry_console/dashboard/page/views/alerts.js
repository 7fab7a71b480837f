// Alerts: what is raised, who receives alerts, what is silenced, and what was lately.

import { get, post, remove, segment } from "../api.js";
import { h, link, toast } from "../dom.js";
import { ago, at, duration, number, until, when, words } from "../format.js";
import { table } from "../lists.js";
import { ask, badge, button, card, circuitLink, facts } from "../pieces.js";

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
const MINUTES = [["15", "15 minutes"], ["60", "1 hour"], ["240", "4 hours"], ["1440", "1 day"], ["10080", "7 days"]];

export function alertsView({ reload }) {
  return {
    title: "Alerts",
    load: (signal) => get("alerts", {}, signal),
    render: (all) => [raised(all, reload), silences(all, reload), recent(all), settings(all)],
  };
}

function raised({ items, receivers }, reload) {
  const more = button("Silence…", () => silence("*", reload), "quiet");
  if (!items.length) return card("Raised now", h("p", { class: "empty" }, "Nothing is over its threshold."), { more });
  const columns = [
    { name: "State", cell: (one) => badge(one.state) },
    { name: "What", class: "wide", cell: (one) => h("span", {}, one.text, " ", place(one), runbook(one)) },
    { name: "Since", cell: (one) => ago(one.raised_at) },
    { name: "Messages", class: "wide", cell: (one) => (receivers.length ? messages(one) : h("span", { class: "dim" }, "log only")) },
    { name: "Action", cell: (one) => (one.silence ? h("span", {}, "until ", at(one.silence.until)) : button("Silence…", () => silence(one.condition, reload), "quiet")) },
  ];
  return card("Raised now", table("Raised alerts", columns, items, { keyOf: (one) => one.condition }), { more });
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
  if (!one.deliveries.length) return h("span", { class: "dim" }, one.silence ? "kept back" : "not sent yet");
  const line = (message) => h("li", { data: { key: message.receiver } }, badge(message.state), h("span", { title: message.receiver }, kindOf(message.receiver)),
    message.detail ? h("small", { class: "dim" }, message.detail) : null);
  return h("ul", { class: "lines" }, one.deliveries.map(line));
}

/** `slack:hooks.slack.com:1a2b3c4d` as a person calls it. */
const kindOf = (receiver) => receiver.split(":").slice(0, 2).join(" ");

export async function silence(condition, reload) {
  const [kind, dependency] = condition.split(":");
  const { receivers } = await get("alerts").catch(() => ({ receivers: [] }));
  const given = await ask({
    title: "Silence alerts",
    words: "Messages about what is raised wait until the silence ends. The end of an incident is still sent.",
    fields: [
      { name: "condition", label: "Which", value: condition, choices: [["*", "All"], ...Object.entries(NAMES), ...(dependency ? [[condition, `${NAMES[kind]}, ${dependency}`]] : [])] },
      ...(receivers.length > 1 ? [{ name: "receiver", label: "Messages to", value: "", optional: true, choices: [["", "Everybody"], ...receivers.map((one) => [one.receiver, kindOf(one.receiver)])] }] : []),
      { name: "for_minutes", label: "For", value: "60", choices: MINUTES },
      { name: "reason", label: "Reason" },
    ],
    action: "Silence",
  });
  if (!given) return;
  try {
    await post("alerts/silences", { ...given, receiver: given.receiver || null, for_minutes: Number(given.for_minutes) });
    toast("Silenced.");
  } catch (error) {
    toast([error.message, ...error.lines].join(" "), "bad");
  }
  reload();
}

/** A condition in words: `circuit_open_seconds:payments` as `Circuit open, payments`. */
export const named = (condition) => {
  const [kind, dependency] = condition.split(":");
  return condition === "*" ? "All alerts" : [NAMES[kind] ?? kind, dependency].filter(Boolean).join(", ");
};

function silences({ silences: held }, reload) {
  if (!held.length) return null;
  const end = (one) => async () => {
    try {
      await remove(`alerts/silences/${segment(one.id)}`);
      toast("The silence has ended.");
    } catch (error) {
      toast(error.message, "bad");
    }
    reload();
  };
  const columns = [
    { name: "What", cell: (one) => named(one.condition) },
    { name: "Messages to", cell: (one) => (one.receiver ? h("span", { title: one.receiver }, kindOf(one.receiver)) : "everybody") },
    { name: "Ends", cell: (one) => until(one.until) },
    { name: "Reason", class: "wide", cell: (one) => one.reason },
    { name: "By", cell: (one) => one.by },
    { name: "Action", cell: (one) => button("End it", end(one), "quiet") },
  ];
  return card("Silences", table("Silences", columns, held, { keyOf: (one) => one.id }));
}

function recent({ recent: ended }) {
  const columns = [
    { name: "What", class: "wide", cell: (one) => one.text },
    { name: "Raised", cell: (one) => when(one.raised_at) },
    { name: "Resolved", cell: (one) => when(one.resolved_at) },
  ];
  return card("Lately", table("Incidents that ended", columns, ended, { keyOf: (one) => `${one.condition} ${one.raised_at}`, empty: "No incident has ended lately." }));
}

/** Send a message to every receiver that says that it is a test, and say what became of it. */
async function tryReceivers() {
  try {
    const { items } = await post("alerts/test");
    const failed = items.filter((one) => one.detail);
    toast(failed.length ? failed.map((one) => `${kindOf(one.receiver)}: ${one.detail}`).join(" ") : "The test arrived everywhere.", failed.length ? "bad" : "good");
  } catch (error) {
    toast([error.message, ...error.lines].join(" "), "bad");
  }
}

/** Whether the value of a condition is a time; that of one dependency is as its kind. */
const isTime = (condition) => condition.split(":")[0].endsWith("_seconds") || condition === "not_starting";

function settings({ thresholds, receivers }) {
  const value = ([condition, limit]) => (limit === 0 ? "off" : isTime(condition) ? `over ${duration(limit)}` : `over ${number(limit)}`);
  const list = receivers.length
    ? h("ul", { class: "lines" }, receivers.map((one) => h("li", {}, words(one.format), h("span", { class: "dim" }, one.host ?? kindOf(one.receiver)))))
    : h("p", { class: "empty" }, "Nobody: alerts are in the log only. ALERT_SLACK_URL, ALERT_TEAMS_URL and ALERT_WEBHOOK_URL name receivers.");
  return h("div", { class: "pair", data: { key: "settings" } },
    card("Thresholds", facts(Object.entries(thresholds).map((pair) => [named(pair[0]), value(pair)]))), card("Receivers", list, { more: receivers.length ? button("Send a test", tryReceivers, "quiet") : null }));
}
