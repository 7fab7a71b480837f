// The overview: what runs, what waits, which dependency is unhealthy, what needs a person.

import { get } from "../api.js";
import { stateBars } from "../charts.js";
import { go, h, link } from "../dom.js";
import { ago, atLeast, coarse, now, number, percent, plural, until, words } from "../format.js";
import { all, badge, card, circuitLink, empty, eventLink, figure, lines, linesCard, linkButton, notice, operationLink, STATES, unreadPart, WAITING } from "../pieces.js";
import { countingNote, waitingIn, WINDOWS } from "../poll.js";
import { place } from "./alerts.js";
import { causeRows, manyRow, othersWords } from "./causes.js";
import { dependencyCards, noteWaiting, refusing } from "./circuits.js";
import { firstStep } from "./operations.js";
import { inMs, rateOf } from "./metrics.js";

export function overviewView({ query, reload }) {
  const minutes = WINDOWS.find(([value]) => value === Number(query.minutes))?.[0] ?? WINDOWS[0][0];
  return {
    title: "Overview",
    hideTitle: true,
    load: async (signal) => partsOf(await get("overview", { window_seconds: minutes * 60 }, signal)),
    // What is broken first, then how many wait or died because of it, then all the rest.
    render: (data) => [
      verdict(data), dependencies(data.circuits), figures(data, minutes), h("div", { class: "pair", data: { key: "causes" } }, causes(data.letters), waits(data)),
      alerts(data.alerts), operations(data, minutes), outbox(data.outbox)],
  };
}

/** Each part stands for itself: one that did not answer is `{error}`. */
function partsOf({ operations: counted, circuits, dead_letters: letters, outbox: events, metrics, alerts: raised, health, unavailable }) {
  const orError = (name, part) => part ?? unreadPart(unavailable[name]);
  if (circuits) noteWaiting(circuits);
  return {
    counted: orError("operations", counted), circuits: orError("circuits", circuits), metrics: orError("metrics", metrics),
    letters: orError("dead_letters", letters), outbox: orError("outbox", events), health: orError("health", health), alerts: orError("alerts", raised),
  };
}

/** All of it in a sentence or two. */
function verdict({ counted, circuits, letters, outbox, health }) {
  const named = (found, words) => (found.length ? [h("strong", {}, words(found.length)), ": ", found.map(({ dependency }, index) => [index ? ", " : "", circuitLink(dependency)])] : null);
  const those = (test) => (circuits.error ? [] : circuits.filter(test));
  const refused = those((one) => refusing(one).length);
  const broken = [
    refused.length ? [h("strong", {}, "Credential refused"), " by ", refused.map((one, index) => [index ? ", " : "", circuitLink(one.dependency), refusedFor(one)]), ": set a new one"] : null,
    named(those(({ state, credential_refused_by: by }) => !by && ["open", "half_open", "forced_open"].includes(state)), (count) => `${plural(count, "circuit")} open`),
    named(those(({ limit_keys: keys, state }) => keys?.some((key) => !key.credential_refused_by) && state === "closed"), (count) => `Circuits of limit keys open at ${plural(count, "dependency", "dependencies")}`),
    named(those(({ throttled_until: paused, state }) => paused && state === "closed"), (count) => `${plural(count, "dependency", "dependencies")} paused`),
    ...(health.error ? [] : Object.entries(health.parts).filter(([name, part]) => !part.healthy && !(refused.length && name === "credentials")).map(([name]) => h("strong", {}, `Unhealthy: ${words(name).toLowerCase()}`))),
  ].filter(Boolean);
  const waiting = waitingIn(counted.unfinished?.by_status);
  const lost = [
    waiting ? h("a", { href: link("operations", { status: waitingMost(counted) }) }, `${plural(waiting, "operation")} ${waiting === 1 ? "waits" : "wait"}`) : null,
    letters.open ? h("a", { href: link("dead-letters", { status: "open" }) }, `${letters.complete ? "" : "at least "}${plural(letters.open, "open dead letter")}`) : null,
    outbox.failed ? h("a", { href: link("outbox", { status: "failed" }) }, `${plural(outbox.failed, "event")} not sent`) : null,
  ].filter(Boolean);
  const sentence = (parts) => parts.flatMap((part, index) => [index ? ", " : "", part]).concat(". ");
  const isKnown = ![counted, circuits, letters, outbox, health].some((part) => part.error);
  const isWell = !broken.length && !letters.open && !outbox.failed;
  if (isWell && isKnown) broken.push(h("strong", {}, "Everything works"));
  const kind = refused.length || those(({ state }) => ["open", "forced_open"].includes(state)).length ? "is-bad" : isWell ? "is-good" : "is-wait";
  return h("p", { class: `verdict ${kind}`, role: "status", data: { key: "verdict" } }, broken.length ? sentence(broken) : null, lost.length ? sentence(lost) : null, countingNote(counted));
}

/** For which limit keys alone a credential is refused; nothing where it is the dependency's own. */
const refusedFor = (one) => (one.credential_refused_by ? "" : ` for ${refusing(one).map((key) => key.limit_key).join(", ")}`);

function figures({ counted, outbox, metrics }, minutes) {
  return h("div", { class: "figures", data: { key: "figures" } },
    figure(counted.unfinished ? number(counted.unfinished.by_status.running) : "–", "under way", { href: link("operations", { status: "running" }), kind: "is-running", note: pendingNote(counted) }),
    lagFigure(outbox), throughput(metrics, minutes), latency(metrics, minutes));
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
  const more = all("alerts");
  if (raised.error) return card("Alerts", notice(raised.error), { more });
  return linesCard("Alerts", raised, (one) => h("li", { data: { key: one.condition } }, badge("raised"), h("span", {}, one.text, " ", place(one)), h("span", { class: "spread" }), ago(one.raised_at)), { more, key: "alerts" });
}

const pendingNote = ({ unfinished }) => (unfinished?.by_status.pending ? `${number(unfinished.by_status.pending)} not started yet` : null);

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
  return card("Operations", [h("p", { class: "dim" }, `${countedWords(counted)} Each bar shows what ended then, and what was accepted then and is not finished. ${ratioWords(counted)}`),
    isIdle(counted) ? firstStep("No operations in this period.") : stateBars(counted, (from, to) => go("operations", { created_after: from, created_before: to })), legend], { more: choice });
}

const isIdle = (counted) => !counted.operations && !STATES.some((state) => counted.by_status[state]);

const countedWords = (counted) => `${plural(counted.operations, "operation")} accepted.${counted.complete ? "" : " Still counting."}`;

const ratioWords = ({ amplification: ratio }) => (ratio === null ? "" : `${ratio.toFixed(2)} attempts per operation.`);

function dependencies(circuits) {
  if (circuits.error) return card("Dependencies", notice(circuits.error));
  return card("Dependencies", dependencyCards(circuits), { more: all("circuits"), kind: "bare" });
}

function causes(letters) {
  const more = all("dead-letters");
  if (letters.error) return card("Dead letters by cause", notice(letters.error), { more });
  if (!letters.groups.length) return card("Dead letters by cause", empty("No dead letter is open."), { more });
  const { causes: count, open } = letters.others;
  const others = count ? h("p", { class: "dim" }, othersWords(count), h("a", { href: link("dead-letters") }, plural(open, "dead letter"))) : null;
  return card("Dead letters by cause", [causeRows(letters.groups), others], { more });
}

/** What waits, for each dependency and kind of wait: all operations behind one circuit are one row. */
function waits({ counted, circuits }) {
  const { unfinished } = counted;
  if (!unfinished) return card("Waiting", empty("Still counting."));
  const rows = Object.entries(unfinished.by_dependency).flatMap(([dependency, counts]) => WAITING.filter((state) => state !== "scheduled" && counts[state]).map((state) => ({ dependency, state, count: counts[state] })));
  if (!rows.length) return card("Waiting", empty("No operation waits."));
  rows.sort((a, b) => b.count - a.count);
  const row = ({ dependency, state, count }) => {
    const first = unfinished.next_attempts.find((one) => one.dependency === dependency && one.status === state);
    const { retry_at: probe, throttled_until: paused } = circuits.error ? {} : (circuits.find((one) => one.dependency === dependency) ?? {});
    const next = first?.next_attempt_at ?? { waiting_circuit: probe, waiting_throttle: paused }[state];
    return manyRow(`${dependency} ${state}`, {
      count, kind: `is-${state}`, href: link("operations", { status: state, dependency }), name: words(state), of: dependency,
      note: first ? [operationLink(first.operation_id, first.key), count > 1 ? " first" : ""] : null, ages: next ? ["next ", until(next)] : null,
      act: linkButton("Retry now…", "bulk-actions/new", { action: "retry_now", status: state, dependency }),
    });
  };
  return card("Waiting", h("ul", { class: "causes" }, rows.map(row)));
}

function outbox(events) {
  const more = all("outbox", events.failed ? { status: "failed" } : {});
  if (events.error) return card("Outbox", notice(events.error), { more });
  const { oldest } = events;
  const waiting = oldest
    ? h("p", {}, `${words(atLeast(events.pending, events.pending_complete))} pending, the oldest `, ago(oldest.pending_since), ": ", eventLink(oldest.event_id, oldest.type))
    : empty("Nothing is waiting to be sent.");
  const failed = (event) => h("li", { data: { key: event.event_id } }, badge("failed"), eventLink(event.event_id, event.type), ago(event.created_at), h("small", { class: "dim line" }, event.detail ?? ""));
  return card("Outbox", [waiting, lines(events.latest_failed, failed)], { more });
}
