// The overview: what runs, what waits, which dependency is unhealthy, what needs a person.

import { get } from "../api.js";
import { stateBars } from "../charts.js";
import { go, h, link } from "../dom.js";
import { ago, asOf, at, atLeast, capital, coarse, now, number, percent, plural, said, someAsOf, until, words } from "../format.js";
import { all, badge, card, circuitLink, empty, eventLink, figure, lines, linesCard, notice, operationLink, STATES, unreadPart } from "../pieces.js";
import { waitingIn, WINDOWS } from "../poll.js";
import { place } from "./alerts.js";
import { causeRows, manyRow, othersWords } from "./causes.js";
import { dependencyCards, isOpen, isPaused, noteWaiting, refusing } from "./circuits.js";
import { firstStep } from "./operations.js";
import { inMs, rateOf } from "./metrics.js";
import { remedies } from "./switches.js";

export function overviewView({ query, reload }) {
  const minutes = WINDOWS.find(([value]) => value === Number(query.minutes))?.[0] ?? WINDOWS[0][0];
  const newest = newestParts();
  return {
    title: "Overview",
    hideTitle: true,
    load: async (signal) => partsOf(newest(await get("overview", { window_seconds: minutes * 60 }, signal))),
    // What is broken first, then how many wait or died because of it, then all the rest.
    render: (data) => [
      verdict(data), dependencies(data), figures(data, minutes), h("div", { class: "pair", data: { key: "causes" } }, causes(data), waits(data, reload)),
      alerts(data), operations(data, minutes), outbox(data)],
  };
}

/** A function that keeps of each part the latest reading: every worker of the app reads by itself, and not at the same time. */
function newestParts() {
  let kept = { as_of: {} };
  return (answer) => {
    const present = new Date(now()).toISOString();
    for (const name of Object.keys(answer).filter((name) => name !== "as_of")) {
      const readAt = answer.as_of[name] ?? present;
      if (answer[name] && kept[name] && readAt < kept.as_of[name]) continue;
      kept = { ...kept, [name]: answer[name], as_of: { ...kept.as_of, [name]: readAt } };
    }
    return kept;
  };
}

/** What an app without an outbox has. */
const NO_EVENTS = { pending: 0, pending_complete: true, oldest: null, failed: 0, failed_complete: true, latest_failed: [], alarm_lag_seconds: 0 };

/** Each part stands for itself: one that did not answer is `{error}`. */
function partsOf({ operations: counted, circuits, dead_letters: letters, outbox: events, metrics, alerts: raised, health, unavailable, as_of: old }) {
  const orError = (name, part) => part ?? unreadPart(unavailable[name]);
  const sent = events ?? (unavailable.outbox ? null : NO_EVENTS);
  if (circuits) noteWaiting(circuits);
  return {
    counted: orError("operations", counted), circuits: orError("circuits", circuits), metrics: orError("metrics", metrics),
    letters: orError("dead_letters", letters), outbox: orError("outbox", sent), health: orError("health", health), alerts: orError("alerts", raised), old,
  };
}

/** All of it in a sentence or two. */
function verdict({ counted, circuits, letters, outbox, health, old }) {
  const linked = (found, more = () => null) => found.map((one, index) => [index ? ", " : "", circuitLink(one.dependency), more(one)]);
  const named = (found, words, more) => (found.length ? [h("strong", {}, words(found.length)), ": ", linked(found, more)] : null);
  const those = (test) => (circuits.error ? [] : circuits.filter(test));
  const refused = those((one) => refusing(one).length);
  const held = those((one) => one.hold)[0]?.hold;
  const ofKeys = (test, words) => {
    const keysOf = (one) => (one.state === "closed" ? (one.limit_keys ?? []).filter(test) : []);
    return named(those((one) => keysOf(one).length), () => words, (one) => ` (${namesOf(keysOf(one))})`);
  };
  const broken = [
    held ? [h("strong", {}, held.share === undefined ? "Everything is held" : "Everything thaws"), ` by ${held.by} since `, at(held.since), `: ${held.reason}`] : null,
    refused.length ? [h("strong", {}, "Credential refused"), " by ", linked(refused, refusedFor), ": set a new one"] : null,
    counted.unfinished?.lacking ? [h("strong", {}, "Missing in this app"), ": ", counted.unfinished.lacking.slice(0, NAMED).join(", "), "; operations wait for it"] : null,
    named(those(isPaused), (count) => `${plural(count, "dependency", "dependencies")} paused`, (one) => [" until ", at(one.throttled_until)]),
    named(those(isOpen), (count) => `${plural(count, "circuit")} open`),
    ofKeys((key) => !key.credential_refused_by && isPaused(key), "Paused for limit keys"),
    ofKeys(isOpen, "Open for limit keys"),
    ...(health.error ? [] : Object.entries(health.parts).filter(([name, part]) => !part.healthy && !(refused.length && name === "credentials")).map(([name]) => h("strong", {}, `Unhealthy: ${words(name).toLowerCase()}`))),
  ].filter(Boolean);
  const waiting = waitingIn(counted.unfinished?.by_status);
  const lost = [
    waiting ? [`${counted.unfinished.complete ? "" : old.operations ? "About " : "At least "}${plural(waiting, "operation")} ${waiting === 1 ? "waits" : "wait"}`, waitingLinks(counted.unfinished.by_status)] : null,
    letters.open ? h("a", { href: link("dead-letters", { status: "open" }) }, `${letters.complete ? "" : waiting ? "at least " : "At least "}${plural(letters.open, "open dead letter")}`) : null,
    outbox.failed ? h("a", { href: link("outbox", { status: "failed" }) }, `${plural(outbox.failed, "event")} not sent`) : null,
  ].filter(Boolean);
  const sentence = (parts) => parts.flatMap((part, index) => [index ? "; " : "", part]).concat(". ");
  const isKnown = ![counted, circuits, letters, outbox, health].some((part) => part.error);
  const isWell = !broken.length && !letters.open && !outbox.failed;
  if (isWell && isKnown) broken.push(h("strong", {}, "Everything works"));
  const kind = held || refused.length || those((one) => isOpen(one) && one.state !== "half_open").length ? "is-bad" : isWell ? "is-good" : "is-wait";
  return h("p", { class: `verdict ${kind}`, role: "status", data: { key: "verdict" } }, broken.map((part) => sentence([part])), lost.length ? sentence(lost) : null, someAsOf(...Object.values(old)));
}

/** For which limit keys alone a credential is refused; nothing where it is the dependency's own. */
const refusedFor = (one) => (one.credential_refused_by ? "" : ` for ${namesOf(refusing(one))}`);

const NAMED = 5;
const namesOf = (keys) => keys.slice(0, NAMED).map((key) => key.limit_key).join(", ") + (keys.length > NAMED ? ` and ${keys.length - NAMED} more` : "");

function figures({ counted, outbox, metrics, old }, minutes) {
  return h("div", { class: "figures", data: { key: "figures" } },
    figure(counted.unfinished ? number(counted.unfinished.by_status.running) : "–", "under way", { href: link("operations", { status: "running" }), kind: "is-running", note: [pendingNote(counted), someAsOf(old.operations)] }),
    lagFigure(outbox, old), throughput(metrics, minutes, old), latency(metrics, minutes, old));
}

function throughput(metrics, minutes, old) {
  const seconds = (Date.parse(metrics.to) - Date.parse(metrics.from)) / 1000;
  const [rate, unit] = metrics.error ? ["–", "min"] : rateOf(metrics.ended, seconds);
  return figure(rate, `operations ended per ${unit}`,
    { href: link("metrics", { minutes }), note: metrics.error ? null : [number(metrics.attempts), " attempts, ", percent(metrics.attempts ? metrics.failures / metrics.attempts : null), " failed", asOf(old.metrics)] });
}

function latency({ error, attempt_ms: attempt, operation_ms: operation }, minutes, old) {
  return figure(error ? "–" : inMs(attempt.p95), "p95 of attempts",
    { href: link("metrics", { minutes }), note: error ? null : [operation.p95 === null ? null : `whole operations ${inMs(operation.p95)}`, asOf(old.metrics)] });
}

/** The age of the oldest pending event; past the threshold of its alert it is an alarm. */
function lagFigure(outbox, old) {
  const seconds = outbox.oldest ? Math.max(0, (now() - Date.parse(outbox.oldest.pending_since)) / 1000) : 0;
  const isLate = outbox.alarm_lag_seconds > 0 && seconds > outbox.alarm_lag_seconds;
  const limit = isLate ? h("span", { class: "alarm" }, `over ${coarse(outbox.alarm_lag_seconds)} `) : null;
  const failed = outbox.failed ? h("span", { class: "alarm" }, atLeast(outbox.failed, outbox.failed_complete), " failed") : null;
  return figure(outbox.error ? "–" : coarse(seconds), "outbox lag",
    { href: link("outbox", outbox.failed ? { status: "failed" } : {}), kind: isLate ? "is-dead_lettered" : "", note: [limit, failed, asOf(old.outbox)] });
}

/** The incidents that go on; nothing while there are none. */
function alerts({ alerts: raised, old }) {
  const more = all("alerts");
  if (raised.error) return card("Alerts", notice(raised.error), { more });
  return linesCard(["Alerts", h("small", { class: "dim" }, " checked once a minute"), asOf(old.alerts)], raised, (one) => h("li", { data: { key: one.condition } }, badge("raised"), h("span", {}, said(one.text), " ", place(one)), h("span", { class: "spread" }), ago(one.raised_at)), { more, key: "alerts" });
}

const pendingNote = ({ unfinished }) => (unfinished?.by_status.pending ? `${number(unfinished.by_status.pending)} not started yet` : null);

/** How many wait for what, each with the list of those. */
function waitingLinks(counts) {
  const kinds = Object.entries(FOR_WHAT).filter(([state]) => counts[state]);
  return kinds.map(([state, what], index) => [index ? ", " : kinds.length > 1 ? ": " : " ", h("a", { href: link("operations", { status: state }) }, kinds.length > 1 ? `${number(counts[state])} ${what}` : what)]);
}

const FOR_WHAT = { waiting_retry: "for a retry", waiting_throttle: "for the end of a pause", waiting_circuit: "for a circuit", waiting_order: "for a turn" };

function operations({ counted, old }, minutes) {
  const choice = h("label", { class: "choice" }, h("span", { class: "sr" }, "Time shown"),
    h("select", { on: { change: (event) => go("", { minutes: event.target.value }) } },
      WINDOWS.map(([value, text]) => h("option", { value: String(value), selected: value === minutes }, text))));
  if (counted.error) return card("Operations", notice(counted.error), { more: choice });
  const by = counted.by_status;
  const legend = h("ul", { class: "legend" }, STATES.filter((state) => by[state]).map((state) =>
    h("li", { data: { key: state } }, h("a", { href: link("operations", { status: state, created_after: counted.from }) }, badge(state), h("strong", {}, number(by[state]))))));
  return card(["Operations", someAsOf(old.operations)], [h("p", { class: "dim" }, `${countedWords(counted)} Each bar shows what ended then, and what was accepted then and is not finished. ${ratioWords(counted)}`),
    isIdle(counted) ? firstStep("No operations in this period.") : stateBars(counted, (from, to) => go("operations", { created_after: from, created_before: to })), legend], { more: choice, key: "Operations" });
}

const isIdle = (counted) => !counted.operations && !STATES.some((state) => counted.by_status[state]);

const countedWords = (counted) => `${plural(counted.operations, "operation")} accepted.${counted.complete ? "" : " What is not finished is still being counted."}`;

const ratioWords = ({ amplification: ratio }) => (ratio === null ? "" : `${ratio.toFixed(2)} attempts per operation.`);

function dependencies({ circuits, counted, old }) {
  if (circuits.error) return card("Dependencies", notice(circuits.error));
  return card(["Dependencies", someAsOf(old.circuits, old.operations, old.dead_letters)], dependencyCards(circuits, counted), { more: all("circuits"), kind: "bare", key: "Dependencies" });
}

function causes({ letters, old }) {
  const more = all("dead-letters");
  if (letters.error) return card("Dead letters by cause", notice(letters.error), { more });
  if (!letters.groups.length) return card("Dead letters by cause", empty("No dead letter is open."), { more });
  const { causes: count, open } = letters.others;
  const others = count ? h("p", { class: "dim" }, othersWords(count), h("a", { href: link("dead-letters") }, plural(open, "dead letter"))) : null;
  return card(["Dead letters by cause", asOf(old.dead_letters)], [causeRows(letters.groups), others], { more, key: "Dead letters by cause" });
}

/** What waits, for each dependency and kind of wait: all operations behind one circuit are one row. */
function waits({ counted, circuits, old }, reload) {
  const { unfinished } = counted;
  if (!unfinished) return card("Waiting", notice(counted.error));
  const rows = unfinished.waiting.filter(({ status }) => FOR_WHAT[status]);
  if (!rows.length) return card("Waiting", empty("No operation waits."));
  const row = (one) => {
    const { dependency, status, count, first } = one;
    const circuit = circuits.error ? null : (circuits.find((each) => each.dependency === dependency) ?? null);
    const isReleased = status === "waiting_circuit" && circuit?.state === "closed" && !circuit.limit_keys && !circuit.hold;
    const next = { waiting_circuit: circuit?.retry_at, waiting_throttle: circuit?.throttled_until }[status] ?? first?.next_attempt_at;
    return manyRow(`${dependency} ${status}`, {
      count, isComplete: unfinished.complete, kind: `is-${status}`, href: link("operations", { status, dependency }), name: capital(FOR_WHAT[status]), of: dependency,
      note: first ? [operationLink(first.operation_id, first.key), count > 1 ? " first" : ""] : null, keys: one.limit_keys,
      ages: isReleased ? "the circuit has closed: they go on" : next ? ["next ", until(next)] : null, act: isReleased ? null : h("div", { class: "actions" }, remedies(one, circuit, reload)),
    });
  };
  return card(["Waiting", someAsOf(old.operations)], h("ul", { class: "causes" }, rows.map(row)), { key: "Waiting" });
}

function outbox({ outbox: events, old }) {
  const more = all("outbox", events.failed ? { status: "failed" } : {});
  if (events.error) return card("Outbox", notice(events.error), { more });
  const { oldest } = events;
  const waiting = oldest
    ? h("p", {}, `${words(atLeast(events.pending, events.pending_complete))} pending, the oldest `, ago(oldest.pending_since), ": ", eventLink(oldest.event_id, oldest.type))
    : empty("Nothing is waiting to be sent.");
  const failed = (event) => h("li", { data: { key: event.event_id } }, badge("failed"), eventLink(event.event_id, event.type), ago(event.created_at), h("small", { class: "dim line" }, event.detail ?? ""));
  return card(["Outbox", asOf(old.outbox)], [waiting, lines(events.latest_failed, failed)], { more, key: "Outbox" });
}
