// Operations as a list, and one of them with its timeline.

import { attempt, doing } from "../acting.js";
import { addressOf, get, getSeldom, post, segment } from "../api.js";
import { timeline } from "../charts.js";
import { go, h, link } from "../dom.js";
import { ago, at, number, said, until, when, words } from "../format.js";
import { column, created, DEPENDENCY, LIMIT_KEY, listView, named, ORIGIN, SHARED, table, textColumn } from "../lists.js";
import { ask, badge, bulkActionLink, button, card, circuitLink, copier, correlationLink, deadLetterLink, empty, endWords, eventLink, facts, FINISHED, headline, HELD, json, laneLink, linesCard, linkButton, mono, operationLink, sharedLink, short, STATES, WAITING, whyWaiting } from "../pieces.js";
import { ACTIONS, CHANGES, changeOf, onAll, selection } from "./bulk.js";
import { TRY } from "./switches.js";

const COLUMNS = [
  column("status", "State", (status) => badge(status)),
  column("key", "Key", (key, one) => operationLink(one.operation_id, key), "wide"),
  column("correlation_id", "Correlation", correlationLink, "roomy"),
  DEPENDENCY,
  LIMIT_KEY,
  column("attempt_count", "Attempts", number, "number"),
  column("next_attempt_at", "Next attempt", (instant) => until(instant)),
  textColumn("Why", whyOf),
  column("created_at", "Accepted", ago),
  column("updated_at", "Changed", ago, "roomy"),
  { name: "Operation", text: (one) => one.operation_id },
];
const FILTERS = [
  { name: "q", label: "Search" },
  { name: "status", label: "State", choices: named(STATES) },
  { name: "dependency", label: "Dependency" },
  ...created("Accepted", { more: true }),
  ...ORIGIN,
  ...SHARED,
];
const ON_MANY = ["cancel", "retry_now", "pause", "resume"];

/** Why an operation last failed; nothing once it has succeeded. */
function errorOf(one) {
  if (one.status === "succeeded") return "";
  return one.attempts.findLast((attempt) => attempt.category)?.error ?? "";
}

/** Why it waits, or how it last failed. */
function whyOf(one) {
  return whyWaiting(one) ?? errorOf(one);
}

export function operationsView(route) {
  const { query, reload } = route;
  const chosen = selection((one) => one.operation_id, ON_MANY, reload);
  return listView(route, {
    title: "Operations", list: "operations", filters: FILTERS, columns: [chosen.column, ...COLUMNS], keyOf: (one) => one.operation_id,
    tools: (page) => [onAll(query, ON_MANY), chosen.bar(page.items)],
    nothing: () => (Object.keys(query).length ? "No operation matches." : firstStep("No operation was accepted yet.")),
  });
}

/** What to do where there is no operation yet. */
export function firstStep(words) {
  return h("div", { class: "first-step", data: { key: "first-step" } }, empty(words),
    h("div", { class: "actions" }, button("Send a test operation", sendTest, "main")));
}

/** The dependency of a new app, and a path of its that fails twice before it answers. */
const DEMO = { name: "flaky", path: "/fail/2" };

async function sendTest() {
  const names = (await attempt(() => getSeldom("dependencies"), () => null))?.items.map((one) => one.name);
  if (!names) return;
  const isDemo = names.includes(DEMO.name);
  const given = await ask({
    title: "Send a test operation", action: "Send it",
    words: isDemo ? `${DEMO.name} is the built-in target: ${DEMO.path} fails twice before it answers.` : "It calls the dependency for real.",
    fields: [
      { name: "dependency", label: "Dependency", value: isDemo ? DEMO.name : names[0], choices: names.map((name) => [name, name]) },
      { name: "method", label: "Method", value: isDemo ? "POST" : "GET", choices: ["GET", "POST"].map((name) => [name, name]) },
      { name: "path", label: "Path", value: isDemo ? DEMO.path : "/" },
    ],
  });
  if (!given) return;
  const { dependency, ...request } = given;
  const accepted = await attempt(() => post("operations", { dependency, request }), () => null);
  if (accepted) go(`operations/${segment(accepted.operation_id)}`);
}

// One operation: where it stands, what it went through and why, and the two things one can do.

export function operationView({ id, reload }) {
  const path = `operations/${segment(id)}`;
  return {
    title: "Operation",
    seconds: 2,
    load: (signal) => get(path, {}, signal),
    render: (one) => [head(one, path, reload), dead(one), card("Timeline", timeline(one)), actions(one), replays(one), content(one), steps(one), heartbeat(one), result(one), events(one), about(one)],
  };
}

const ENDS_FIRST = "An attempt that is under way ends first";
const RETRY = { what: "retry-now", label: "Retry now", done: "Retrying now.", kind: "main" };
const RESUME = { what: "resume", label: "Resume", done: "Resuming.", kind: "main" };
const CHANGE = { what: "resume", label: "Change", done: "Changing.", kind: "quiet", title: "Change this operation?", fields: CHANGES, bodyOf: (given) => ({ ...changeOf(given), at_once: true }),
  words: `It waits on as it is, but for what you change. ${ENDS_FIRST}.` };
const CHANGE_HELD = { ...CHANGE, label: "Change and resume", done: "Resuming.", bodyOf: changeOf, title: "Change this operation and let it go on?", words: "What you change counts from then on." };
const PAUSE = { what: "pause", label: "Pause", action: "Pause it", done: "Pausing.", title: "Pause this operation?", words: `${ENDS_FIRST}.`, fields: ACTIONS.pause.fields };
const CANCEL = { what: "cancel", label: "Cancel", action: "Cancel it", done: "Cancelling.", kind: "danger", title: "Cancel this operation?",
  words: `${ENDS_FIRST} and may still succeed. What the dependency has already done is not undone.` };

/** What one can do to an operation as it is now. While a circuit or a pause holds it, it would only wait again. */
function offered({ status, next_attempt_at: due, attempts }) {
  if (FINISHED.includes(status)) return [];
  if (status === "paused") return [RESUME, CHANGE_HELD, CANCEL];
  if (status === "waiting_circuit") return [{ ...TRY, kind: "main" }, CHANGE, PAUSE, CANCEL];
  // Who was answered `Retry-After` itself keeps to it, also when somebody has ended the pause of the dependency.
  if (status === "waiting_throttle") return [CHANGE, PAUSE, CANCEL, ...(attempts.at(-1)?.category === "throttled" ? [{ ...RETRY, kind: "quiet" }] : [])];
  if (status === "running") return [...(due ? [{ ...RETRY, label: "Ask now", done: "Asking now." }] : []), PAUSE, CANCEL];
  return [...(WAITING.includes(status) ? [{ ...RETRY, label: status === "scheduled" ? "Start now" : RETRY.label }, CHANGE] : []), PAUSE, CANCEL];
}

/** The way to what ends its wait; nothing where that is no circuit and no pause. */
const itsCircuit = ({ status, waits_for: other, dependency }) => (HELD.includes(status) ? linkButton("Its circuit", `circuits/${segment(other ?? dependency)}`) : null);

const head = (one, path, reload) => headline([
  badge(one.status), h("strong", { class: "key" }, one.key || one.operation_id),
  one.replaced_by ? h("span", {}, "replaced by ", operationLink(one.replaced_by, short(one.replaced_by))) : null,
  one.waits_for ? h("span", {}, "waits for the circuit of ", circuitLink(one.waits_for)) : null,
  one.status === "waiting_order" ? h("span", {}, "waits for its turn in the lane of ", laneLink(one.order_key)) : null,
  whyWaiting(one) ? h("span", { class: "why" }, said(whyWaiting(one))) : null,
  one.next_attempt_at ? h("span", { class: "countdown" }, endWords(one), until(one.next_attempt_at)) : null,
], [offered(one).map((action) => doing(path, reload, action)), itsCircuit(one)]);

function dead(one) {
  if (!one.dead_letter) return null;
  return h("div", { class: "notice bad", data: { key: "dead" } }, h("strong", {}, words(one.dead_letter.reason)), " ",
    one.dead_letter.id ? deadLetterLink(one.dead_letter.id, "Look at the dead letter") : one.dead_letter.detail);
}

const DONE = { cancel: "Cancelled", retry_now: "Retried now", try: "Tried past the circuit", pause: "Paused", resume: "Resumed" };

/** What somebody changed of it; nothing where that was not. */
const changed = ({ before, after }) => (after ? ` (${JSON.stringify(before)} to ${JSON.stringify(after)})` : "");

/** Who did what to it. */
function actions(one) {
  const line = (each) => h("li", {}, h("span", {}, DONE[each.action], each.by ? ` by ${each.by}` : "", each.reason ? `: ${each.reason}` : "", changed(each)), h("span", { class: "spread" }), ago(each.at));
  return linesCard("Actions", one.actions, line, { key: "actions" });
}

/** What became of the replays of its dead letters, the latest first. */
function replays(one) {
  const line = (each) => h("li", { class: "stack", data: { key: `${each.dead_letter_id} ${each.requested_at}` } },
    h("span", {}, each.status ? badge(each.status) : h("span", { class: "dim" }, "No longer known"), " replay of ", deadLetterLink(each.dead_letter_id, words(each.reason)),
      each.failed_again ? [" · ", deadLetterLink(each.failed_again, "failed again")] : null,
      each.action_id ? [" · ", bulkActionLink(each.action_id, "bulk action")] : null),
    h("small", { class: "dim" }, ago(each.requested_at), each.by ? ` by ${each.by}` : "", each.note ? ` · ${each.note}` : ""));
  return linesCard("Replays", one.replays, line, { key: "replays" });
}

function content(one) {
  const more = h("span", { class: "actions" }, copier("Copy as curl", curl(one)), copier("Copy as retryctl", retryctl(one)));
  if (one.handler && "input" in one) return card(`Input of ${one.handler}`, json(one.input), { key: "content", more });
  return one.request ? card("Request", json(one.request), { key: "content", more }) : null;
}

/** The same operation to be submitted again, under a key of its own. Credentials stay masked. */
function submission(one) {
  const what = one.handler ? { handler: one.handler, input: one.input } : { dependency: one.dependency, request: one.request };
  return quoted(JSON.stringify(one.correlation_id ? { ...what, correlation_id: one.correlation_id } : what));
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const curl = (one) => `curl ${addressOf("operations")} -H 'Content-Type: application/json' -H "x-functions-key: $DURABLE_RETRY_KEY" -d ${submission(one)}`;
const retryctl = (one) => `printf %s ${submission(one)} | python -m retryctl submit -`;

const STEPS = [
  column("status", "State", (status) => badge(status)),
  column("name", "Step"),
  column("attempts", "Attempts", number, "number"),
  column("result", "Result", (result, step) => (step.status === "succeeded" ? json(result) : ""), "wide"),
];

const steps = (one) => (one.steps?.length ? card("Steps", table("Steps", STEPS, one.steps, { keyOf: (step) => step.name }), { key: "steps" }) : null);

function heartbeat(one) {
  if (!one.heartbeat) return null;
  const { attempt, at: instant, progress } = one.heartbeat;
  return card("Heartbeat", [h("p", {}, `By attempt ${attempt}, `, at(instant)), json(progress)], { key: "heartbeat" });
}

function result(one) {
  return one.result === null || one.result === undefined ? null : card("Result", json(one.result));
}

const events = (one) => linesCard("Follow-up events", one.events,
  (event) => h("li", {}, badge(event.state), eventLink(event.event_id, event.type), mono(event.event_id)), { more: h("a", { href: link("outbox") }, "Outbox") });

function about(one) {
  return card("About", facts([
    ["Operation", mono(one.operation_id)],
    ["Dependency", circuitLink(one.dependency)],
    ["Handler", one.handler],
    ["Source", one.source],
    [one.replay_of ? "Replayed by" : "Submitted by", one.submitted_by],
    ["Correlation", one.correlation_id && correlationLink(one.correlation_id)],
    ["Trace", one.trace_id && (one.trace_url ? h("a", { href: one.trace_url, rel: "noreferrer" }, one.trace_id) : mono(one.trace_id))],
    ["Priority", one.priority && words(one.priority)],
    ["Limit key", one.limit_key && sharedLink("limit_key", one.limit_key)],
    ["Debounce key", one.debounce_key && sharedLink("debounce_key", one.debounce_key)],
    ["Order key", one.order_key && [laneLink(one.order_key), " · ", h("a", { href: link("operations", { order_key: one.order_key }) }, "all in this order")]],
    ["Attempts", number(one.attempt_count)],
    ["Accepted", when(one.created_at)],
    ["Begins", one.start_at && [at(one.start_at), one.status === "scheduled" ? [" · ", until(one.start_at)] : null]],
    ["Changed", when(one.updated_at)],
    ["Deadline", one.deadline_at ? [at(one.deadline_at), FINISHED.includes(one.status) ? null : [" · ", until(one.deadline_at)]] : "none"],
  ]));
}
