// Metrics over time: attempts, durations and waits of one dependency or of all, with what happened beside them, each as a
// chart and as a table.

import { get, getSeldom } from "../api.js";
import { WAITS } from "../charts.js";
import { go, h, link } from "../dom.js";
import { at, duration, number, now, percent, plural, span, words } from "../format.js";
import { column, counts, filters, pagedTable, table } from "../lists.js";
import { MEANS, overTime, RATIOS, spanRows, TIMES } from "../over_time.js";
import { card, empty, figure, linesCard, notice } from "../pieces.js";
import { Paced, WINDOWS } from "../poll.js";

const MARKS_SECONDS = 15;

export function metricsView({ path, query }) {
  const minutes = WINDOWS.find(([value]) => value === Number(query.minutes))?.[0] ?? 60;
  const isSpan = Boolean(query.from || query.to);
  let isRead = false; // Nothing is asked beside a range that is none.
  const happened = new Paced((signal) => isRead && happenedIn(rangeOf(query, minutes), query.dependency, signal), MARKS_SECONDS);
  return {
    title: "Metrics",
    seconds: minutes > 60 || isSpan ? 30 : 10,
    later: { happened },
    load: async (signal) => {
      const [found, { items }] = await Promise.all([
        get("metrics", { dependency: query.dependency, ...rangeOf(query, minutes) }, signal).catch((error) => {
          if (error.status !== 400) throw error; // A span that is too long, or that ends before it begins.
          return { error };
        }),
        getSeldom("dependencies", signal).catch(() => ({ items: [] })),
      ]);
      isRead = !found.error;
      return { ...found, known: [...items.map((one) => one.name), "queue"] };
    },
    render: (read) => {
      const found = { ...read, happened: happened.known };
      return [choices(path, { ...query, minutes: isSpan ? "" : String(minutes) }, found.known, isSpan), found.error ? notice(found.error) : content(found, path, query)];
    },
  };
}

/** The range that is asked for: one that was chosen, or the last minutes, from the beginning of a minute. */
function rangeOf({ from, to }, minutes) {
  const end = to ? Date.parse(to) : now();
  return { from: from ?? new Date(Math.floor(end / 60_000) * 60_000 - (minutes - 1) * 60_000).toISOString(), to };
}

function choices(path, query, known, isSpan) {
  const names = [...new Set([...known, query.dependency].filter(Boolean))];
  return filters(path, query, [
    { name: "dependency", label: "Dependency", choices: names.map((name) => [name, name]) },
    { name: "minutes", label: "Time", choices: [...(isSpan ? [["", "From and To"]] : []), ...WINDOWS.map(([value, text]) => [String(value), text])], required: true, clears: ["from", "to"] },
    { name: "from", label: "From", instant: true }, { name: "to", label: "To", instant: true },
  ]);
}

// What happened in a range: marks in the charts, and outages.

const MARKED = ["deployment", "settings", "bulk"];
const DAY_MS = 86_400_000;

async function happenedIn(range, dependency, signal) {
  const asked = { after: range.from, before: range.to };
  const [outages, ...marked] = await Promise.all([
    // One that goes on has begun before the range.
    get("activity", { kind: "circuit", dependency, after: new Date(Date.parse(range.from) - DAY_MS).toISOString(), before: range.to, limit: 50 }, signal),
    ...MARKED.map((kind) => get("activity", { ...asked, kind, limit: 50 }, signal)),
  ]);
  const marks = marked.flatMap((page) => page.items).map((one) => ({ at: Date.parse(one.at), kind: one.kind, text: [one.who, one.what].filter(Boolean).join(" ") }));
  return { marks, outages: outages.items };
}

const isEventful = (one) => one.attempts || one.started || one.ended || one.openings || one.key_openings;

function content(found, path, query) {
  const { total, points } = found;
  // The limits have a table of their own on the page: all of it would be too wide.
  const columns = query.dependency ? [...COLUMNS, ...LIMITS.map(({ name, text }) => ({ name, text }))] : COLUMNS;
  if (!isEventful(total)) {
    return empty("Nothing happened in this time. What happens shows here within a few seconds.");
  }
  const eventful = points.filter(isEventful);
  return [
    totals(found),
    h("div", { class: "charts", data: { key: "charts" } }, charts(found, path, query)),
    query.dependency ? null : card("By dependency", table("By dependency", byDependency(query), found.dependencies.filter(isEventful), { keyOf: (one) => one.dependency })),
    total.failures || Object.keys(total.waits).length ? h("div", { class: "pair", data: { key: "why" } }, failures(total), waits(total)) : null,
    Object.keys(total.by_priority).length ? card("By priority", table("By priority", BY_PRIORITY, Object.entries(total.by_priority).map(([name, one]) => ({ name, ...one })), { keyOf: (one) => one.name }), { key: "priorities" }) : null,
    h("details", { data: { key: "table" } }, h("summary", {}, "The charts as a table"),
      query.dependency ? table("Limits by time", [COLUMNS[0], ...LIMITS], eventful, { keyOf: (one) => one.at }) : null,
      pagedTable("Metrics by time", columns, { items: eventful }, { path, query, file: "metrics", keyOf: (one) => one.at })),
  ];
}

function charts(found, path, query) {
  const { points, step_seconds: seconds, total, happened } = found;
  const chart = charting(found, path, query.dependency);
  const values = (of) => points.map(of);
  const percentiles = (name) => [["p50", "running"], ["p95", "waiting_retry"]].map(([share, kind]) => ({ name: share, kind, values: values((point) => point[name][share]) }));
  const waited = Object.keys(WAITS).filter((kind) => total.waits[kind]);
  return [
    attempts(points, chart),
    chart("Retry amplification", "attempts per operation", [{ name: "attempts per operation", kind: "waiting_retry", values: values((point) => point.amplification) }], RATIOS),
    chart("Time of an attempt", "time of an attempt", percentiles("attempt_ms"), TIMES),
    chart("Critical time: from acceptance to the end", "critical time", percentiles("operation_ms"), TIMES),
    chart("Lateness: how long after its wait an attempt began", "lateness", percentiles("late_ms"), TIMES),
    waited.length ? chart("Time waited", "time waited", waited.map((kind) => ({ name: WAITS[kind][0], kind: WAITS[kind][1], isBar: true, values: values((point) => (point.waits[kind]?.seconds ?? 0) * 1_000) })), TIMES) : null,
    ...limitCharts({ points, seconds, chart }),
    circuits(happened, points, seconds),
  ];
}

/** A function that draws values over time, with what happened beside them. */
function charting({ points, step_seconds: seconds, happened }, path, dependency) {
  const opened = ({ openings: own, key_openings: ofKeys }) => [own && plural(own, "circuit opened", "circuits opened"), ofKeys && plural(ofKeys, "circuit of a limit key opened", "circuits of limit keys opened")].filter(Boolean).join(", ");
  const openings = points.filter(opened).map((point) => ({ at: Date.parse(point.at) + seconds * 500, kind: "opening", text: opened(point) }));
  const zoom = (from, to) => go(path, { dependency, from, to });
  const isEmpty = (layers) => layers.every((layer) => layer.values.every((value) => value === null));
  return (title, name, layers, scale) => card(title, isEmpty(layers) ? empty("There are no values in this time.") : overTime({ title: name, points, seconds, layers, scale, zoom, marks: [...openings, ...(happened?.marks ?? [])] }), { key: name });
}

const attempts = (points, chart) => chart("Attempts", "attempts", [
  { name: "failed", kind: "dead_lettered", isBar: true, values: points.map((point) => point.failures) },
  { name: "succeeded", kind: "succeeded", isBar: true, values: points.map((point) => point.attempts - point.failures) },
  { name: "retries", kind: "waiting_retry", values: points.map((point) => (point.attempts ? point.retries : null)) },
]);

// The last hour of one dependency, which its own page shows.

const HOUR = WINDOWS[1][0];

/** Its metrics, and what happened beside them. */
export const lastHour = (dependency) => new Paced(async (signal) => {
  const range = rangeOf({}, HOUR);
  const [found, happened] = await Promise.all([get("metrics", { dependency, ...range }, signal), happenedIn(range, dependency, signal).catch(() => null)]);
  return { ...found, happened };
}, MARKS_SECONDS);

/** Its attempts and starts beside their limits, and its outages. */
export function hourCharts(found, dependency) {
  const { points, step_seconds: seconds, total, happened } = found;
  const chart = charting(found, "metrics", dependency);
  const shown = [total.attempts ? attempts(points, chart) : null, ...limitCharts({ points, seconds, chart }), circuits(happened, points, seconds)].filter(Boolean);
  return shown.length ? h("div", { class: "charts", data: { key: "charts" } }, shown) : card("Last hour", empty("Nothing was attempted."));
}

/** What ran at once and started per second beside the limits of the moment, for each limit that there was. */
function limitCharts({ points, seconds, chart }) {
  const elapsed = (point) => Math.min(Math.max((now() - Date.parse(point.at)) / 1_000, 1), seconds);
  const used = (title, name, unit, limit, amount) => (points.every((point) => point[limit] === null) ? null : chart(title, name, [
    { name: unit, kind: "running", isBar: true, values: points.map((point) => amount(point) / elapsed(point)) },
    { name: "limit", kind: "waiting_retry", values: points.map((point) => point[limit]) },
  ], MEANS));
  return [
    used("Attempts at once, and their limit", "attempts at once", "under way on average", "current_concurrency", (point) => point.attempt_seconds),
    used("Attempts per second, and their limit", "attempts per second", "per second", "current_rate_per_second", (point) => point.attempts),
  ];
}

/** The outages of each circuit, from the first opening to the closing. */
function circuits(happened, points, seconds) {
  const begin = Date.parse(points[0].at);
  const end = Math.min(now(), Date.parse(points.at(-1).at) + seconds * 1_000);
  const outages = (happened?.outages ?? []).map((one) => ({ ...one, from: Date.parse(one.at), to: one.until ? Date.parse(one.until) : end })).filter(({ to }) => to > begin);
  if (!outages.length) return null;
  const outageSpan = ({ from, to, what, reason, until }) => ({ from, to, text: `${what}, ${span(from, to)}${until ? "" : " so far"}: ${reason}` });
  const circuit = ({ dependency, limit_key: key }) => (key ? `${dependency} for ${key}` : dependency);
  const rows = [...Map.groupBy(outages, circuit)].sort(([a], [b]) => a.localeCompare(b)).map(([name, spans]) => [name, spans.map(outageSpan)]);
  return card("Circuit over time", spanRows({ title: "Circuit over time", begin, end, rows }), { key: "circuits" });
}

function totals({ total, from, to }) {
  const seconds = (Date.parse(to) - Date.parse(from)) / 1000;
  return h("div", { class: "figures", data: { key: "figures" } },
    figure(number(total.attempts), "attempts", { note: perTime(total.attempts, seconds) }),
    figure(percent(total.attempts ? total.failures / total.attempts : null), "of attempts failed", { kind: total.failures ? "is-dead_lettered" : "" }),
    figure(total.amplification === null ? "–" : `× ${total.amplification.toFixed(2)}`, "attempts per operation", { note: plural(total.retries, "retry", "retries") }),
    figure(number(total.ended), "operations ended", { note: perTime(total.ended, seconds) }),
    figure(number(total.openings), total.openings === 1 ? "outage began" : "outages began", { kind: total.openings ? "is-open" : "", note: total.key_openings ? `${number(total.key_openings)} more of limit keys` : null }),
    total.debounce_replaced || total.debounce_ran ? figure(number(total.debounce_ran), "debounced runs", { note: `${number(total.debounce_replaced)} replaced` }) : null);
}

/** A count as a rate that is no tiny fraction, as [rate, unit]. */
export function rateOf(count, seconds) {
  if (!count || !(seconds > 0)) return ["0", "min"];
  const [unit, rate] = [["s", count / seconds], ["min", (count / seconds) * 60], ["h", (count / seconds) * 3600]].find(([name, value]) => value >= 1 || name === "h");
  return [rate < 10 ? String(Number(rate.toFixed(1))) : number(Math.round(rate)), unit];
}

const perTime = (count, seconds) => (count ? rateOf(count, seconds).join(" per ") : null);

export const inMs = (milliseconds) => (milliseconds === null || milliseconds === undefined ? "–" : duration(milliseconds / 1000));

// Tables.

const limitText = (value) => (value === null ? "–" : MEANS.write(value));

/** A percentile of the durations that a field has. */
const percentile = (name, field, share, kind = "number") => ({ name, class: kind, cell: (one) => inMs(one[field][share]), text: (one) => one[field][share] });

const FIGURES = [
  column("started", "Accepted", number, "number"),
  ...counts("attempts"),
  column("failures", "Failed", number, "number"),
  ...counts("retries"),
  column("amplification", "Amplification", (ratio) => (ratio === null ? "–" : RATIOS.write(ratio)), "number"),
  percentile("Attempt p50", "attempt_ms", "p50", "number roomy"),
  percentile("Attempt p95", "attempt_ms", "p95"),
  percentile("Operation p50", "operation_ms", "p50", "number roomy"),
  percentile("Operation p95", "operation_ms", "p95"),
  percentile("Late p95", "late_ms", "p95"),
  column("openings", "Openings", (own, { key_openings: ofKeys }) => [number(own), ofKeys ? h("small", { class: "dim" }, ` + ${number(ofKeys)} of limit keys`) : null], "number"),
  { name: "Openings of limit keys", text: (one) => one.key_openings },
];
// Of one dependency: several have no common limit.
const LIMITS = [column("current_concurrency", "Limit at once", limitText, "number"), column("current_rate_per_second", "Limit per second", limitText, "number")];
const COLUMNS = [column("at", "From", at), ...FIGURES];

const BY_PRIORITY = [
  column("name", "Priority", words),
  column("started", "Accepted", number, "number"),
  column("waits", "Waits", (waits) => number(waits.count), "number"),
  column("waits", "Waited on average", (waits) => (waits.count ? duration(waits.seconds / waits.count) : "–"), "number"),
  percentile("Operation p50", "operation_ms", "p50"),
  percentile("Operation p95", "operation_ms", "p95"),
];

const byDependency = (query) => [column("dependency", "Dependency", (dependency) => h("a", { href: link("metrics", { ...query, dependency }) }, dependency)), ...FIGURES];

const failures = ({ failures_by_category: by }) => linesCard("Failed attempts by category", Object.entries(by).sort(([, a], [, b]) => b - a),
  ([category, count]) => h("li", { data: { key: category } }, h("span", {}, words(category)), h("strong", {}, number(count))), { nothing: "None failed." });

const waits = ({ waits: by }) => linesCard("Waits", Object.entries(by), ([kind, { count, seconds }]) => h("li", { data: { key: kind } },
  h("span", {}, `${plural(count, "wait")} ${WAITS[kind]?.[0] ?? kind}`), h("span", { class: "dim" }, `${duration(seconds / count)} on average`)), { nothing: "Nothing waited." });
