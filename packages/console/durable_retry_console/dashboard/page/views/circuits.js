// The circuits of dependencies: cards, a table, and one circuit with its window, changes and switches.

import { doing } from "../acting.js";
import { get, getSeldom, segment } from "../api.js";
import { callWindow } from "../charts.js";
import { go, h, link } from "../dom.js";
import { at, atLeast, capital, duration, inFull, now, number, percent, plural, said, someAsOf, span, until, when, words } from "../format.js";
import { column, counts, pagedTable, table, textColumn } from "../lists.js";
import { all, ask, badge, button, card, circuitLink, facts, headline, HELD, linesCard, loading, mono, notice, operationLink, unreadPart } from "../pieces.js";
import { COUNT_SECONDS, countedOperations, Paced, waitingIn, WINDOWS } from "../poll.js";
import { hourCharts, lastHour } from "./metrics.js";
import { CLOSE, END_PAUSE, SWITCHES, SWITCHES_BESIDE_KEYS, TRY, turning } from "./switches.js";

/** Dependencies of an overview, the worst first: a card for each in trouble, one line for all that are healthy. */
export function dependencyCards(circuits, counted) {
  const [well, ill] = [true, false].map((healthy) => circuits.filter((one) => one.healthy === healthy));
  return [ill.length ? h("div", { class: "circuits" }, ill.map((one) => circuitCard(one, counted))) : null,
    well.length ? h("p", { class: "healthy", data: { key: "healthy" } }, badge("healthy"), well.map((one) => [" ", circuitLink(one.dependency)])) : null];
}

/** A card that leads to the circuit's page: what is broken since when, and who waits or died because of it. */
function circuitCard(one, counted) {
  const { dependency, state, failure_ratio: ratio, calls, waiting, open_dead_letters: dead } = one;
  const isRefused = refusing(one).length > 0;
  const keys = keysStanding(one);
  return h("a", { class: `circuit is-${isRefused ? "refused" : isPaused(one) ? "paused" : (keys?.state ?? state)}`, href: link(`circuits/${encodeURIComponent(dependency)}`), data: { key: dependency } },
    h("span", { class: "circuit-name" }, h("strong", {}, dependency), isRefused ? badge("refused", "Credential refused") : isPaused(one) ? badge("paused") : badge(keys?.state ?? state, keys?.words)),
    one.why ? h("span", { class: "circuit-why" }, whyHeld(one)) : calls ? ratioBar(one) : null,
    h("span", { class: "circuit-numbers" },
      waiting ? pair(atLeast(waiting, counted?.unfinished?.complete), waiting === 1 ? "waits" : "wait", "is-waiting_retry") : null,
      dead ? pair(number(dead), dead === 1 ? "dead letter" : "dead letters", "is-dead_lettered") : null,
      calls ? h("span", {}, h("b", {}, percent(ratio)), h("small", {}, `of ${plural(calls, "call")} failed`)) : null,
      one.amplification > 1 ? h("span", {}, h("b", {}, times(one.amplification)), h("small", {}, "attempts per operation")) : null),
    trend(one), next(one));
}

/** The circuits of a dependency and its limit keys that a refused credential keeps open. */
export const refusing = (one) => [one, ...(one.limit_keys ?? [])].filter((circuit) => circuit.credential_refused_by);

/** Whether a pause holds calls up: an older outage comes second. */
export const isPaused = ({ throttled_until: until, state }) => Boolean(until) && state !== "forced_open";

/** Whether a circuit holds calls up that nothing else does first. */
export const isOpen = (one) => !one.credential_refused_by && !isPaused(one) && ["open", "half_open", "forced_open"].includes(one.state);

/** The limit keys for which calls do not go, of a dependency whose own circuit is closed; null without any. */
function keysStanding({ state, limit_keys: keys }) {
  if (state !== "closed" || !keys) return null;
  const open = keys.filter(isOpen);
  const named = open.length ? open : keys;
  return { state: open.length ? "open" : "paused", words: `${open.length ? "Open" : "Paused"} for ${plural(named.length, "key")}` };
}

/** Why calls do not go, with the point of it strong; nothing while they go. */
function whyHeld({ why }) {
  if (!why) return null;
  const [, point, rest] = /^(.*?)([:;] .*)?$/s.exec(why);
  return [h("strong", {}, said(capital(point))), rest ? said(rest) : null];
}

// How many waited for each dependency when the page asked before: with it one sees whether it gets better.
const seen = new Map();
const TREND_MS = 60_000;

/** Remember how many wait now. */
export function noteWaiting(circuits) {
  for (const { dependency, waiting } of circuits) {
    const past = (seen.get(dependency) ?? []).filter((one) => now() - one.at < 2 * TREND_MS);
    if (waiting !== null) seen.set(dependency, [...past, { at: now(), waiting }]);
  }
}

/** How many more or fewer wait than a minute ago; nothing before the page has seen that. */
function trend({ dependency, waiting }) {
  const before = seen.get(dependency)?.findLast((one) => now() - one.at >= TREND_MS);
  if (!before || waiting === null || (!waiting && !before.waiting)) return null;
  const more = waiting - before.waiting;
  return h("span", { class: "dim" }, more ? `${number(Math.abs(more))} ${more > 0 ? "more" : "fewer"} wait than a minute ago` : "As many wait as a minute ago");
}

/** Operations of a dependency that wait: for a retry, for the circuit or for their turn. */
function waitingFor(circuit, counted) {
  if (!counted) return "–";
  return atLeast(waitingIn(counted.unfinished.by_dependency[circuit.dependency]), counted.unfinished.complete);
}

/** Attempts per operation of a dependency in the time that was counted: the retry amplification. */
const amplificationOf = (circuit, counted) => times(counted?.by_dependency[circuit.dependency]?.amplification ?? null);
const times = (ratio) => (ratio === null ? "–" : `× ${ratio.toFixed(2)}`);

const pair = (count, name, kind) => h("span", {}, h("b", { class: `count ${kind}` }, count), " ", h("small", {}, name));

/** What is next for a circuit, as a line; null when nothing is. */
function next(circuit) {
  if (circuit.unreadable) return h("span", { class: "circuit-next", title: circuit.unreadable }, "its state cannot be read");
  if (isPaused(circuit)) return h("span", { class: "circuit-next" }, "goes on ", until(circuit.throttled_until));
  if (circuit.state === "half_open") return h("span", { class: "circuit-next" }, "the next call is a probe: it closes the circuit, or opens it again");
  const deadlines = circuit.stops_deadline ? "; deadlines are stopped" : "";
  if (circuit.retry_at) return h("span", { class: "circuit-next" }, circuit.state === "open" ? "next probe " : "set by hand, ends ", until(circuit.retry_at), deadlines);
  if (circuit.state === "forced_open") return h("span", { class: "circuit-next" }, "held open until somebody closes it", deadlines);
  return null;
}

/** The failure ratio beside the ratio at which the circuit opens. */
function ratioBar(circuit) {
  const threshold = circuit.opens_at_ratio;
  const style = (ratio) => ({ width: `${Math.round((ratio ?? 0) * 100)}%` });
  return h("span", { class: "ratio", "aria-hidden": "true" }, h("span", { class: "ratio-fill is-dead_lettered", style: style(circuit.failure_ratio) }),
    threshold === null ? null : h("span", { class: "ratio-mark", style: { left: `${threshold * 100}%` } }));
}

// Every dependency's circuit.

const COLUMNS = [
  column("dependency", "Dependency", circuitLink),
  column("state", "State", (state) => badge(state)),
  column("failure_ratio", "Failing", percent, "number"),
  ...counts("calls"),
  column("slow_calls", "Slow", number, "number"),
  ...counts("waiting"),
  column("open_dead_letters", "Dead letters", number, "number"),
  column("retry_at", "Next probe", (instant) => until(instant)),
  textColumn("Why", (one) => one.why),
  column("changed_by", "By"),
];

export function circuitsView({ path, query }) {
  return {
    title: "Circuits",
    load: async (signal) => {
      const { circuits, operations, unavailable, as_of: old } = await get("overview", {}, signal);
      if (circuits) noteWaiting(circuits);
      return circuits ? { circuits, counted: operations, old } : unreadPart(unavailable.circuits);
    },
    render: ({ error, circuits, counted, old }) => (error ? notice(error) : [
      someAsOf(old.circuits, old.operations, old.dead_letters), dependencyCards(circuits, counted),
      h("details", { data: { key: "table" } }, h("summary", {}, "As a table"),
        pagedTable("Circuits", COLUMNS, { items: circuits }, { path, query, file: "circuits", keyOf: (one) => one.dependency, nothing: "No dependency is configured." })),
    ]),
  };
}

// One circuit: its numbers, its last minutes, what was done by hand, and its switches.

/** The operations that a circuit or a throttling pause holds, with the state in which they wait. */
async function waitsOf(dependency, signal) {
  const pages = HELD.map(async (status) => ({ status, items: (await get("operations", { dependency, status, limit: 10 }, signal)).items }));
  return (await Promise.all(pages)).filter(({ items }) => items.length);
}

export function circuitView({ id: name, query, reload }) {
  const path = `circuits/${segment(name)}`;
  const key = query.limit_key; // Whose circuit it is; undefined for the dependency's own.
  const outages = new Paced((signal) => get("activity", { kind: "circuit", dependency: name, q: key, limit: 20 }, signal), 5);
  const later = key ? { outages } : {
    waits: new Paced((signal) => waitsOf(name, signal), 5),
    counted: new Paced((signal) => countedOperations(WINDOWS[0][0], signal), COUNT_SECONDS),
    outages,
    hour: lastHour(name),
  };
  return {
    title: key ? `${name} for ${key}` : name,
    later,
    load: async (signal) => {
      const [circuit, dependencies] = await Promise.all([get(path, { limit_key: key }, signal), getSeldom("dependencies", signal).catch(() => ({ items: [] }))]);
      const settings = dependencies.items.find((one) => one.name === name) ?? null;
      return { ...circuit, settings, opens_at_ratio: settings?.circuit.failure_ratio ?? null };
    },
    render: (read) => {
      const circuit = { ...read, waits: later.waits?.known, counted: later.counted?.known, outages: outages.known, hour: later.hour?.value };
      return [
        head(circuit, reload),
        limitKeys(circuit, path, reload),
        trip(circuit),
        card(!key && hasOneForEachKey(circuit) ? "Window of operations without a limit key" : "Window", [callWindow(circuit.window, circuit.opens_at_ratio), circuit.calls ? ratioBar(circuit) : null, numbers(circuit)]),
        ...(key ? [outagesOf(circuit), audit(circuit)] : [lately(circuit), limits(circuit), outagesOf(circuit), waiting(circuit, reload), audit(circuit), settings(circuit)]),
      ];
    },
  };
}

const OUTAGES = [
  { name: "When", cell: (one) => outageSpan(one), text: (one) => one.at },
  column("what", "What", undefined, "wide"),
  column("reason", "Why", undefined, "wide"),
  column("who", "By"),
];

const KEYS = [
  column("limit_key", "Limit key", (key, { dependency }) => circuitLink(dependency, key, key)),
  column("state", "State", (state, one) => badge(isPaused(one) ? "paused" : state)),
  { name: "Next call", cell: ({ throttled_until: paused, retry_at: probe }) => (paused || probe ? until(paused ?? probe) : "–"), text: ({ throttled_until: paused, retry_at: probe }) => paused ?? probe },
  column("why", "Why", (why) => said(capital(why)), "wide"),
];

/** The circuits of limit keys that are not closed, and the way to that of any; null where keys have none. */
function limitKeys({ dependency, limit_key: key, limit_keys: keys, settings: given }, path, reload) {
  if (!hasOneForEachKey({ settings: given })) return null;
  if (key) return h("p", { data: { key: "whose" } }, "The circuit of one limit key. ", circuitLink(dependency, undefined, `The circuit of ${dependency}`), " applies to every key while it is held open or disabled by hand.");
  const columns = [...KEYS, { name: "Actions", isBare: true, cell: (one) => turning(isPaused(one) ? END_PAUSE : CLOSE, one, reload) }];
  const lookUp = async () => {
    const typed = await ask({ title: `A limit key of ${dependency}`, fields: [{ name: "limit_key", label: "Limit key" }], action: "Show its circuit", kind: "main" });
    if (typed) go(path, typed);
  };
  const closed = "Calls of every limit key go.";
  return card("Limit keys", table("Limit keys", columns, keys ?? [], { keyOf: (one) => one.limit_key, nothing: closed }), { more: button("Look up a key", lookUp, "quiet") });
}

const hasOneForEachKey = ({ settings: given }) => given?.circuit.by === "limit_key";

/** The last hour, or that it is asked for still, or why it is not there. */
function lately({ hour, dependency }) {
  if (hour && !hour.error) return hourCharts(hour, dependency);
  return card("Last hour", hour ? notice(hour.error) : loading());
}

/** When an outage was, or since when it goes on. */
export const outageSpan = ({ at: began, until: ended }) => (ended ? h("time", { datetime: began, title: `${inFull(began)} to ${inFull(ended)}` }, span(Date.parse(began), Date.parse(ended))) : when(began));

function outagesOf({ outages: found, dependency, limit_key: key }) {
  // Words of one key can be in another.
  const items = found?.items.filter((one) => !key || one.limit_key === key);
  const content = found ? table("Outages", OUTAGES, items, { keyOf: (one) => `${one.at} ${one.limit_key}`, nothing: "It has not opened yet." }) : loading();
  return card("Outages", content, { more: all("activity", { kind: "circuit", dependency, q: key }) });
}

function head(circuit, reload) {
  const isOff = circuit.settings?.circuit.enabled === false;
  const isUnchanged = circuit.reason === "new"; // What the API gives as the reason of a circuit that never moved.
  const held = whyHeld(circuit);
  const own = circuit.limit_key || !hasOneForEachKey(circuit) ? "It" : "The circuit of operations without a limit key";
  const why = isUnchanged ? h("span", { class: "dim" }, `${own} has not opened yet.`) : [h("span", {}, words(circuit.reason)), h("span", { class: "dim" }, `by ${circuit.changed_by}`)];
  const marks = [refusing(circuit).length ? badge("refused", "Credential refused") : null, isPaused(circuit) ? badge("paused") : null, badge(circuit.state)];
  return headline([marks, held ? h("span", {}, held) : why, next(circuit)],
    isOff ? h("span", { class: "dim" }, "Switched off in dependencies.toml") : [...(isPaused(circuit) ? [END_PAUSE] : []), ...(!circuit.limit_key && hasOneForEachKey(circuit) ? SWITCHES_BESIDE_KEYS : SWITCHES)].map((one) => turning(one, circuit, reload)));
}

/** The window that opened it: a new epoch begins without calls, and the question is what went before. */
function trip(circuit) {
  if (!circuit.tripped_by || !["open", "half_open"].includes(circuit.state)) return null;
  return card("What opened it", callWindow(circuit.tripped_by, circuit.opens_at_ratio));
}

function numbers(circuit) {
  return facts([
    ["Failing", percent(circuit.failure_ratio)], ["Slow calls", number(circuit.slow_calls)],
    ...(circuit.limit_key ? [["Operations waiting", h("a", { href: link("operations", { dependency: circuit.dependency, limit_key: circuit.limit_key }) }, `about ${number(circuit.waiting)}`)]] : [
      ["Operations waiting", [waitingFor(circuit, circuit.counted), someAsOf(circuit.counted?.counted_at)]], ["Attempts per operation, 15 min", amplificationOf(circuit, circuit.counted)]]),
    ["Next probe", circuit.retry_at ? until(circuit.retry_at) : null], ["Held until", circuit.expires_at ? at(circuit.expires_at) : null],
  ]);
}

/** What may run at once and start per second by now, and what waits for it; null without limits. */
function limits({ limits: now, counted, dependency }) {
  if (!now || (!now.max_concurrency && !now.rate_per_second && !now.waiting_by_key)) return null;
  const running = counted?.unfinished.by_dependency[dependency]?.running ?? null;
  return card("Limits", facts([
    ["At once", now.max_concurrency ? `${number(now.max_concurrency)} attempts` : "no limit"],
    ["In use", now.max_concurrency ? `${number(now.lent)} of ${number(now.max_concurrency - now.shared_concurrency)}${now.shared_concurrency ? `, and up to ${number(now.shared_concurrency)} more that workers share` : ""}` : null],
    ["Operations running", running === null ? null : number(running)],
    ["Starts per second", now.rate_per_second ? number(now.rate_per_second) : "no limit"],
    ["Waiting for a turn", `about ${number(now.waiting)}`],
    ["Most waiting", now.waiting_by_key && Object.entries(now.waiting_by_key).map(([key, count]) => `${key}: ${number(count)}`).join(", ")],
  ]));
}

function waiting({ waits, dependency }, reload) {
  const line = (one) => h("li", { data: { key: one.operation_id } }, operationLink(one.operation_id, one.key), one.limit_key ? h("span", { class: "dim" }, `of ${one.limit_key}`) : null, h("span", { class: "spread" }), until(one.next_attempt_at),
    one.status === "waiting_circuit" ? doing(`operations/${segment(one.operation_id)}`, reload, TRY) : null);
  return waits?.map(({ status, items }) => linesCard(words(status), items, line, { more: all("operations", { dependency, status }) }));
}

function audit(circuit) {
  const line = (entry) => h("li", { class: "stack" }, h("span", {}, h("strong", {}, words(entry.action)), ` by ${entry.by} · ${entry.reason}`),
    h("small", { class: "dim" }, when(entry.at), entry.until ? [" · until ", at(entry.until)] : null));
  return linesCard("Manual changes", circuit.audit, line, { nothing: "None so far." });
}

function eachKey(bounds) {
  if (!bounds) return null;
  const { max_concurrency: most, rate_per_second: rate } = bounds;
  return `for each limit key ${[most && `${number(most)} at once`, rate && `${rate} a second`].filter(Boolean).join(", ")}`;
}

function settings({ settings: given, dependency }) {
  if (!given) return null;
  const { circuit, retry, timeouts, retry_budget: budget, limits } = given;
  return card("Settings", facts([
    ["Address", given.base_url ? mono(given.base_url) : "none: functions call it"],
    ["Opens at", `${percent(circuit.failure_ratio)} of at least ${number(circuit.minimum_calls)} calls in ${duration(circuit.window_seconds)}${circuit.by ? ", for each limit key" : ""}`],
    ["Break", `${duration(circuit.break_seconds)}, at most ${duration(circuit.max_break_seconds)}`],
    ["Retries", `${words(retry.strategy)}, ${retry.max_attempts === -1 ? "until the deadline, for ever where there is none" : plural(retry.max_attempts, "attempt")}`],
    ["Retry budget", budget.ratio ? `${budget.ratio} per first attempt, at least ${budget.minimum_per_second} a second` : "off"],
    ["Limits", [limits.max_concurrency && `${number(limits.max_concurrency)} at once`, limits.rate_per_second && `${limits.rate_per_second} a second`, eachKey(limits.per_key)].filter(Boolean).join(", ") || "none"],
    ["One attempt", duration(timeouts.attempt_seconds)], ["Deadline", timeouts.deadline_seconds ? duration(timeouts.deadline_seconds) : "none"],
    ["Deduplicates", given.idempotency.header || "no"],
  ]), { more: h("a", { href: link("policy", { dependency }) }, "Preview the policy") });
}
