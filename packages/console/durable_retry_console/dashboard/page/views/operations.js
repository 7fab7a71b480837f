// Operations as a list, and one of them with its timeline.

import { act } from "../acting.js";
import { addressOf, get, getSeldom, post, segment } from "../api.js";
import { timeline } from "../charts.js";
import { go, h, link, toast } from "../dom.js";
import { ago, at, number, until, when, words } from "../format.js";
import { filters, pageQuery, pager, SHARED, table } from "../lists.js";
import { ask, badge, button, card, circuitLink, copier, correlationLink, deadLetterLink, eventLink, facts, FINISHED, json, laneLink, mono, operationLink, sharedLink, short, STATES, untilWords, WAITING, whyWaiting } from "../pieces.js";
import { ACTIONS, onAll, optionsOf, selection } from "./bulk.js";

const COLUMNS = [
  { name: "State", cell: (one) => badge(one.status), text: (one) => one.status },
  { name: "Key", class: "wide", cell: (one) => operationLink(one.operation_id, one.key), text: (one) => one.key },
  { name: "Correlation", class: "roomy", cell: (one) => correlationLink(one.correlation_id), text: (one) => one.correlation_id },
  { name: "Dependency", cell: (one) => circuitLink(one.dependency), text: (one) => one.dependency },
  { name: "Attempts", class: "number", cell: (one) => number(one.attempt_count), text: (one) => one.attempt_count },
  { name: "Next attempt", cell: (one) => until(one.next_attempt_at), text: (one) => one.next_attempt_at },
  { name: "Why", class: "wide", cell: (one) => h("span", { class: "clip", title: whyOf(one) }, whyOf(one)), text: whyOf },
  { name: "Accepted", cell: (one) => ago(one.created_at), text: (one) => one.created_at },
  { name: "Changed", class: "roomy", cell: (one) => ago(one.updated_at), text: (one) => one.updated_at },
  { name: "Operation", class: "hidden", cell: () => "", text: (one) => one.operation_id },
];
const FILTERS = [
  { name: "q", label: "Search" },
  { name: "status", label: "State", choices: STATES.map((state) => [state, words(state)]) },
  { name: "dependency", label: "Dependency" },
  { name: "created_after", label: "Accepted after", instant: true },
  { name: "created_before", label: "Accepted before", instant: true, more: true },
  { name: "handler", label: "Handler", more: true },
  { name: "source", label: "Source", more: true },
  { name: "key", label: "Key", more: true },
  ...SHARED,
];
const ON_MANY = ["cancel", "retry_now", "pause", "resume"];
const SHOWN = COLUMNS.filter((column) => column.class !== "hidden");

/** Why an operation last failed; nothing once it has succeeded. */
function errorOf(one) {
  if (one.status === "succeeded") return "";
  return one.attempts.findLast((attempt) => attempt.category)?.error ?? "";
}

/** Why it waits, or how it last failed. */
function whyOf(one) {
  return whyWaiting(one) ?? errorOf(one);
}

export function operationsView({ path, query, reload }) {
  const chosen = selection((one) => one.operation_id, (one) => one.key, ON_MANY, reload);
  return {
    title: "Operations",
    load: (signal) => get("operations", pageQuery(query, FILTERS.map((filter) => filter.name)), signal),
    render: (page) => [
      filters(path, query, FILTERS),
      onAll(query, ON_MANY),
      chosen.bar(page.items),
      isNew(query, page) ? firstStep("No operation was accepted yet.") : table("Operations", [chosen.column, ...SHOWN], page.items, { keyOf: (one) => one.operation_id, empty: page.next_cursor ? "No match so far; the next page looks further." : "No operation matches." }),
      pager(path, query, page, COLUMNS, "operations"),
    ],
  };
}

const isNew = (query, page) => !page.items.length && !page.next_cursor && Object.keys(query).length === 0;

/** What to do where there is no operation yet. */
export function firstStep(words) {
  return h("div", { class: "first-step", data: { key: "first-step" } }, h("p", { class: "empty" }, words),
    h("div", { class: "actions" }, button("Send a test operation", sendTest, "main")));
}

/** The dependency of a new app, and a path of its that fails twice before it answers. */
const DEMO = { name: "flaky", path: "/fail/2" };

async function sendTest() {
  try {
    const names = (await getSeldom("dependencies")).items.map((one) => one.name);
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
    const { operation_id: id } = await post("operations", { dependency, request });
    go(`operations/${segment(id)}`);
  } catch (error) {
    toast([error.message, ...(error.lines ?? [])].join(" "), "bad");
  }
}

// One operation: where it stands, what it went through and why, and the two things one can do.

export function operationView({ parameters: [id], reload }) {
  const path = `operations/${segment(id)}`;
  return {
    title: "Operation",
    seconds: 2,
    load: (signal) => get(path, {}, signal),
    render: (one) => [headline(one, path, reload), dead(one), card("Timeline", timeline(one)), actions(one), replays(one), content(one), steps(one), heartbeat(one), result(one), events(one), about(one)],
  };
}

function headline(one, path, reload) {
  const turn = (what, done, body) => act(path, what, body, done, reload);
  const cancel = async () => {
    const words = "An attempt that is under way ends first and may still succeed. What the dependency has already done is not undone.";
    if (await ask({ title: "Cancel this operation?", words, action: "Cancel it", kind: "danger" })) turn("cancel", "Cancelling.");
  };
  const pause = async () => {
    const given = await ask({ title: "Pause this operation?", words: "An attempt that is under way ends first.", fields: ACTIONS.pause.fields, action: "Pause it" });
    if (given) turn("pause", "Pausing.", optionsOf(given));
  };
  return h("div", { class: "headline", data: { key: "headline" } },
    h("div", { class: "headline-words" }, badge(one.status), h("strong", { class: "key" }, one.key || one.operation_id),
      one.replaced_by ? h("span", {}, "replaced by ", operationLink(one.replaced_by, short(one.replaced_by))) : null,
      one.waits_for ? h("span", {}, "waits for the circuit of ", circuitLink(one.waits_for)) : null,
      one.status === "waiting_order" ? h("span", {}, "waits for its turn in the lane of ", laneLink(one.order_key)) : null,
      whyWaiting(one) ? h("span", { class: "why" }, whyWaiting(one)) : null,
      one.next_attempt_at ? h("span", { class: "countdown" }, untilWords(one.status), until(one.next_attempt_at)) : null),
    h("div", { class: "actions" },
      WAITING.includes(one.status) ? button(one.status === "scheduled" ? "Start now" : "Retry now", () => turn("retry-now", "Retrying now."), "main") : null,
      one.status === "paused" ? button("Resume", () => turn("resume", "Resuming."), "main") : null,
      FINISHED.includes(one.status) || one.status === "paused" ? null : button("Pause", pause),
      FINISHED.includes(one.status) ? null : button("Cancel", cancel, "danger")));
}

function dead(one) {
  if (!one.dead_letter) return null;
  return h("div", { class: "notice bad", data: { key: "dead" } }, h("strong", {}, words(one.dead_letter.reason)), " ",
    one.dead_letter.id ? deadLetterLink(one.dead_letter.id, "Look at the dead letter") : one.dead_letter.detail);
}

const DONE = { cancel: "Cancelled", retry_now: "Retried now", pause: "Paused", resume: "Resumed" };

/** Who did what to it. */
function actions(one) {
  if (!one.actions?.length) return null;
  const line = (each) => h("li", {}, h("span", {}, DONE[each.action], each.by ? ` by ${each.by}` : "", each.reason ? `: ${each.reason}` : ""), h("span", { class: "spread" }), ago(each.at));
  return card("Actions", h("ul", { class: "lines" }, one.actions.map(line)), { key: "actions" });
}

/** What became of the replays of its dead letters, the latest first. */
function replays(one) {
  if (!one.replays?.length) return null;
  const line = (each) => h("li", { class: "stack", data: { key: `${each.dead_letter_id} ${each.requested_at}` } },
    h("span", {}, each.status ? badge(each.status) : h("span", { class: "dim" }, "No longer known"), " replay of ", deadLetterLink(each.dead_letter_id, words(each.reason)),
      each.failed_again ? [" · ", deadLetterLink(each.failed_again, "failed again")] : null,
      each.action_id ? [" · ", h("a", { href: link(`bulk-actions/${segment(each.action_id)}`) }, "bulk action")] : null),
    h("small", { class: "dim" }, ago(each.requested_at), each.by ? ` by ${each.by}` : "", each.note ? ` · ${each.note}` : ""));
  return card("Replays", h("ul", { class: "lines" }, one.replays.map(line)), { key: "replays" });
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

function steps(one) {
  if (!one.steps?.length) return null;
  const columns = [
    { name: "State", cell: (step) => badge(step.status) },
    { name: "Step", cell: (step) => step.name },
    { name: "Attempts", class: "number", cell: (step) => number(step.attempts) },
    { name: "Result", class: "wide", cell: (step) => step.status === "succeeded" ? json(step.result) : "" },
  ];
  return card("Steps", table("Steps", columns, one.steps, { keyOf: (step) => step.name }), { key: "steps" });
}

function heartbeat(one) {
  if (!one.heartbeat) return null;
  const { attempt, at: instant, progress } = one.heartbeat;
  return card("Heartbeat", [h("p", {}, `By attempt ${attempt}, `, at(instant)), json(progress)], { key: "heartbeat" });
}

function result(one) {
  return one.result === null || one.result === undefined ? null : card("Result", json(one.result));
}

function events(one) {
  if (!one.events?.length) return null;
  const line = (event) => h("li", {}, badge(event.state), eventLink(event.event_id, event.type), mono(event.event_id));
  return card("Follow-up events", h("ul", { class: "lines" }, one.events.map(line)), { more: h("a", { href: link("outbox") }, "Outbox") });
}

function about(one) {
  return card("About", facts([
    ["Operation", mono(one.operation_id)],
    ["Dependency", circuitLink(one.dependency)],
    ["Handler", one.handler],
    ["Source", one.source],
    ...(one.submitted_by ? [[one.replay_of ? "Replayed by" : "Submitted by", one.submitted_by]] : []),
    ["Correlation", one.correlation_id ? correlationLink(one.correlation_id) : null],
    ...(one.trace_id ? [["Trace", one.trace_url ? h("a", { href: one.trace_url, rel: "noreferrer" }, one.trace_id) : mono(one.trace_id)]] : []),
    ...(one.priority ? [["Priority", words(one.priority)]] : []),
    ...(one.debounce_key ? [["Debounce key", sharedLink("debounce_key", one.debounce_key)]] : []),
    ...(one.order_key ? [["Order key", h("span", {}, laneLink(one.order_key), " · ", h("a", { href: link("operations", { order_key: one.order_key }) }, "all in this order"))]] : []),
    ["Attempts", number(one.attempt_count)],
    ["Accepted", when(one.created_at)],
    ...(one.start_at ? [["Begins", h("span", {}, at(one.start_at), one.status === "scheduled" ? [" · ", until(one.start_at)] : null)]] : []),
    ["Changed", when(one.updated_at)],
    ["Deadline", one.deadline_at ? h("span", {}, at(one.deadline_at), FINISHED.includes(one.status) ? "" : " · ", FINISHED.includes(one.status) ? "" : until(one.deadline_at)) : "none"],
  ]));
}
