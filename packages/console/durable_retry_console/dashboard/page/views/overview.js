// The overview: what runs, what waits, which dependency is unhealthy, what needs a person.

import { get } from "../api.js";
import { stateBars } from "../charts.js";
import { go, h, link } from "../dom.js";
import { ago, atLeast, coarse, now, number, percent, plural, until, words } from "../format.js";
import { badge, button, card, eventLink, figure, notice, operationLink, STATES, WAITING } from "../pieces.js";
import { countingNote, waitingIn, WINDOWS } from "../poll.js";
import { place } from "./alerts.js";
import { standing } from "./causes.js";
import { byUrgency, circuitCard } from "./circuits.js";
import { firstStep } from "./operations.js";
import { inMs, rateOf } from "./metrics.js";

export function overviewView({ query, reload }) {
  const minutes = WINDOWS.find(([value]) => value === Number(query.minutes))?.[0] ?? WINDOWS[0][0];
  return {
    title: "Overview",
    hideTitle: true,
    load: async (signal) => partsOf(await get("overview", { window_seconds: minutes * 60 }, signal)),
    render: (data) => [figures(data, minutes), alerts(data.alerts), operations(data, minutes), dependencies(data), h("div", { class: "pair", data: { key: "causes" } }, causes(data.letters), waits(data)), outbox(data.outbox)],
  };
}

/** Each part stands for itself: one that did not answer is `{error}`. */
function partsOf({ operations: counted, circuits, dead_letters: letters, outbox: events, metrics, alerts: raised, health, unavailable }) {
  const orError = (name, part) => part ?? { error: { status: 503, message: `The API could not read it (${unavailable[name]}).` } };
  return {
    counted: orError("operations", counted), circuits: orError("circuits", circuits && byUrgency(circuits)),
    metrics: orError("metrics", metrics), letters: orError("dead_letters", letters), outbox: orError("outbox", events), health: orError("health", health), alerts: orError("alerts", raised),
  };
}

function figures({ counted, circuits, letters, outbox, metrics, health }, minutes) {
  const ailing = circuits.error ? null : circuits.filter((one) => ["open", "half_open", "forced_open"].includes(one.state)).length;
  const sick = health.error ? [] : Object.entries(health.parts ?? {}).filter(([, part]) => !part.healthy).map(([name]) => words(name).toLowerCase());
  return h("div", { class: "figures", data: { key: "figures" } },
    figure(present(counted, ({ running }) => running), "under way", { href: link("operations", { status: "running" }), kind: "is-running", note: countingNote(counted) ?? pendingNote(counted) }),
    figure(present(counted, waitingIn), "waiting", { href: link("operations", { status: waitingMost(counted) }), kind: waitingIn(counted.unfinished?.by_status) ? "is-waiting_retry" : "", note: countingNote(counted) ?? heldNote(counted) }),
    figure(ailing === null ? "–" : number(ailing), ailing === 1 ? "circuit not closed" : "circuits not closed", { href: link("circuits"), kind: ailing ? "is-open" : "" }),
    figure(letters.error ? "–" : atLeast(letters.open, letters.complete), "open dead letters",
      { href: link("dead-letters", { status: "open" }), kind: letters.open ? "is-dead_lettered" : "", note: letters.oldest_at ? ["oldest ", ago(letters.oldest_at)] : null }),
    lagFigure(outbox),
    throughput(metrics, minutes), latency(metrics, minutes),
    sick.length ? figure("Unhealthy", sick.join(", "), { kind: "is-dead_lettered" }) : null);
}

function throughput(metrics, minutes) {
  const seconds = (Date.parse(metrics.to) - Date.parse(metrics.from)) / 1000;
  const [rate, unit] = metrics.error ? ["–", "min"] : rateOf(metrics.ended, seconds);
  return figure(rate, `operations ended per ${unit}`,
    { href: link("metrics", { minutes }), note: metrics.error ? null : [number(metrics.attempts), " attempts, ", percent(metrics.attempts ? metrics.failures / metrics.attempts : null), " failed"] });
}

function latency({ error, attempt_ms: attempt, operation_ms: operation }, minutes) {
  return figure(error ? "–" : inMs(attempt.p95), "p95 of attempts",
    { href: link("metrics", { minutes }), note: error || operation.p95 === null ? null : `whole operations ${inMs(operation.p95)}` });
}

/** The age of the oldest pending event; past the threshold of its alert it is an alarm. */
function lagFigure(outbox) {
  const seconds = outbox.oldest ? Math.max(0, (now() - Date.parse(outbox.oldest.pending_since)) / 1000) : 0;
  const isLate = outbox.alarm_lag_seconds > 0 && seconds > outbox.alarm_lag_seconds;
  const limit = isLate ? h("span", { class: "alarm" }, `over ${coarse(outbox.alarm_lag_seconds)} `) : null;
  const failed = outbox.failed ? h("span", { class: "alarm" }, atLeast(outbox.failed, outbox.failed_complete), " failed") : null;
  return figure(outbox.error ? "–" : coarse(seconds), "outbox lag",
    { href: link("outbox", outbox.failed ? { status: "failed" } : {}), kind: isLate ? "is-dead_lettered" : "", note: limit || failed ? [limit, failed] : null });
}

/** The incidents that go on; nothing while there are none. */
function alerts(raised) {
  const more = h("a", { href: link("alerts") }, "All");
  if (raised.error) return card("Alerts", notice(raised.error), { more });
  if (!raised.length) return null;
  const line = (one) => h("li", { data: { key: one.condition } }, badge("raised"), h("span", {}, one.text, " ", place(one)), h("span", { class: "spread" }), ago(one.raised_at));
  return card("Alerts", h("ul", { class: "lines" }, raised.map(line)), { more, key: "alerts" });
}

/** A count of what has not ended; a dash while it is not known. */
const present = ({ unfinished }, count) => (unfinished ? number(count(unfinished.by_status)) : "–");

const pendingNote = ({ unfinished }) => (unfinished?.by_status.pending ? `${number(unfinished.by_status.pending)} not started yet` : null);
const heldNote = ({ unfinished }) => (unfinished?.by_status.waiting_circuit ? `${number(unfinished.by_status.waiting_circuit)} for a circuit` : null);

/** The waiting state that has the most: where a click on the sum leads. */
function waitingMost({ unfinished }) {
  const count = (state) => unfinished?.by_status[state] ?? 0;
  return ["waiting_retry", "waiting_throttle", "waiting_circuit", "waiting_order"].reduce((most, state) => (count(state) > count(most) ? state : most));
}

function operations({ counted }, minutes) {
  const choice = h("label", { class: "choice" }, h("span", { class: "sr" }, "Time shown"),
    h("select", { on: { change: (event) => go("", { minutes: event.target.value }) } },
      WINDOWS.map(([value, text]) => h("option", { value: String(value), selected: value === minutes }, text))));
  if (counted.error) return card("Operations", notice(counted.error), { more: choice });
  const by = counted.by_status;
  const legend = h("ul", { class: "legend" }, STATES.filter((state) => by[state]).map((state) =>
    h("li", { data: { key: state } }, h("a", { href: link("operations", { status: state, created_after: counted.from }) }, badge(state), h("strong", {}, number(by[state]))))));
  return card("Operations", [h("p", { class: "dim" }, `${countedWords(counted)} A bar has what ended then, and what was accepted then and goes on. ${ratioWords(counted)}`),
    isIdle(counted) ? firstStep("No operations in this period.") : stateBars(counted, (from, to) => go("operations", { created_after: from, created_before: to })), legend], { more: choice });
}

const isIdle = (counted) => !counted.operations && !STATES.some((state) => counted.by_status[state]);

function countedWords(counted) {
  const accepted = `${plural(counted.operations, "operation")} accepted.`;
  return counted.complete ? accepted : `${accepted} The count goes on.`;
}

const ratioWords = ({ amplification: ratio }) => (ratio === null ? "" : `${ratio.toFixed(2)} attempts per operation.`);

function dependencies({ circuits, counted, letters }) {
  if (circuits.error) return card("Dependencies", notice(circuits.error));
  const cards = circuits.map((circuit) => circuitCard(circuit, counted.error ? null : counted, letters.by_dependency?.[circuit.dependency]?.open));
  return card("Dependencies", h("div", { class: "circuits" }, cards), { more: h("a", { href: link("circuits") }, "All"), kind: "bare" });
}

// What a person may have to act on: one row for each cause, with what to do about all of it.

function causes(letters) {
  const more = h("a", { href: link("dead-letters") }, "All");
  if (letters.error) return card("Dead letters by cause", notice(letters.error), { more });
  if (!letters.groups.length) return card("Dead letters by cause", h("p", { class: "empty" }, "No dead letter is open."), { more });
  const row = ({ group, count, sample, status, came_back, first_seen_at: first, last_seen_at: last }) => cause(group, {
    count, kind: "is-dead_lettered", href: link(`causes/${encodeURIComponent(group)}`), mark: standing({ status, came_back }), name: words(sample.reason), of: sample.dependency ?? "no dependency",
    note: sample.detail, ages: ["first ", ago(first), ", last ", ago(last)], act: h("a", { class: "button", href: link("replays/new", { group }) }, "Replay…"),
  });
  const { causes: count, open } = letters.others;
  const others = count ? h("p", { class: "dim" }, `and ${plural(count, "more cause")}, `, h("a", { href: link("dead-letters") }, plural(open, "dead letter"))) : null;
  return card("Dead letters by cause", [h("ul", { class: "causes" }, letters.groups.map(row)), others], { more });
}

/** What waits, for each dependency and kind of wait: all operations behind one circuit are one row. */
function waits({ counted, circuits }) {
  const { unfinished } = counted;
  if (!unfinished) return card("Waiting", h("p", { class: "empty" }, "It is not known yet what waits."));
  const rows = Object.entries(unfinished.by_dependency).flatMap(([dependency, counts]) => WAITING.filter((state) => state !== "scheduled" && counts[state]).map((state) => ({ dependency, state, count: counts[state] })));
  if (!rows.length) return card("Waiting", h("p", { class: "empty" }, "No operation waits."));
  rows.sort((a, b) => b.count - a.count);
  const row = ({ dependency, state, count }) => {
    const first = unfinished.next_attempts.find((one) => one.dependency === dependency && one.status === state);
    const probe = state === "waiting_circuit" && !circuits.error ? circuits.find((one) => one.dependency === dependency)?.retry_at : null;
    const next = first?.next_attempt_at ?? probe;
    return cause(`${dependency} ${state}`, {
      count: number(count), kind: `is-${state}`, href: link("operations", { status: state, dependency }), name: words(state), of: dependency,
      note: first ? [operationLink(first.operation_id, first.key), count > 1 ? " first" : ""] : null, ages: next ? ["next ", until(next)] : null,
      act: h("a", { class: "button", href: link("replays/new", { action: "retry_now", status: state, dependency }) }, "Retry now…"),
    });
  };
  return card("Waiting", h("ul", { class: "causes" }, rows.map(row)));
}

function cause(key, { count, kind, href, name, of, mark = null, note, ages, act }) {
  return h("li", { data: { key } }, h("strong", { class: `count ${kind}` }, typeof count === "number" ? number(count) : count),
    h("div", { class: "cause-words" }, h("span", { class: "headline-words" }, h("span", {}, h("a", { href }, name), " ", h("span", { class: "dim" }, of)), mark), h("small", { class: "cause-note" }, note), h("small", { class: "dim" }, ages)), act);
}

function outbox(events) {
  const more = h("a", { href: link("outbox", events.failed ? { status: "failed" } : {}) }, "All");
  if (events.error) return card("Outbox", notice(events.error), { more });
  const { oldest } = events;
  const waiting = oldest
    ? h("p", {}, `${words(atLeast(events.pending, events.pending_complete))} pending, the oldest `, ago(oldest.pending_since), ": ", eventLink(oldest.event_id, oldest.type))
    : h("p", { class: "empty" }, "Nothing is waiting to be sent.");
  const bad = events.latest_failed.map((event) => h("li", { data: { key: event.event_id } },
    badge("failed"), eventLink(event.event_id, event.type), ago(event.created_at), h("small", { class: "dim line" }, event.detail ?? "")));
  return card("Outbox", [waiting, bad.length ? h("ul", { class: "lines" }, bad) : null], { more });
}
