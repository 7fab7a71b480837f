// Metrics over time: attempts, durations and waits of one dependency or of all, each as a chart and as a table.

import { get, getSeldom } from "../api.js";
import { h, link, s } from "../dom.js";
import { at, duration, number, now, percent, plural, time, words } from "../format.js";
import { filters, pager, table } from "../lists.js";
import { card, figure } from "../pieces.js";
import { WINDOWS } from "../poll.js";

const [WIDTH, HEIGHT, ROOM] = [10, 100, 4]; // Of a step, of a chart, and above its highest value.

export function metricsView({ path, query }) {
  const minutes = WINDOWS.find(([value]) => value === Number(query.minutes))?.[0] ?? 60;
  return {
    title: "Metrics",
    seconds: minutes > 60 ? 30 : 10,
    load: async (signal) => {
      const from = new Date(Math.floor(now() / 60_000) * 60_000 - (minutes - 1) * 60_000).toISOString();
      const [found, { items }] = await Promise.all([
        get("metrics", { dependency: query.dependency, from }, signal),
        getSeldom("dependencies", signal).catch(() => ({ items: [] })),
      ]);
      return { ...found, known: [...items.map((one) => one.name), "queue"] };
    },
    render: (found) => [choices(path, { ...query, minutes: String(minutes) }, found.known), content(found, path, query)],
  };
}

function choices(path, query, known) {
  const names = [...new Set([...known, query.dependency].filter(Boolean))];
  return filters(path, query, [
    { name: "dependency", label: "Dependency", choices: names.map((name) => [name, name]) },
    { name: "minutes", label: "Time", choices: WINDOWS.map(([value, text]) => [String(value), text]), required: true },
  ]);
}

function content(found, path, query) {
  const { total, points } = found;
  if (!total.attempts && !total.started && !total.ended && !total.openings) {
    return h("p", { class: "empty" }, "Nothing happened in this time. What happens shows here within a few seconds.");
  }
  return [
    totals(found),
    card("Attempts", chart(found, attemptBars, { title: "attempts", legend: [["succeeded", "succeeded"], ["failed", "dead_lettered"], ["retries", "waiting_retry"]] })),
    card("Time of an attempt", chart(found, times("attempt_ms"), PERCENTILES)),
    card("Time of a whole operation", chart(found, times("operation_ms"), PERCENTILES)),
    query.dependency ? null : card("By dependency", table("By dependency", byDependency(query), found.dependencies.filter((one) => one.attempts || one.started || one.ended || one.openings), { keyOf: (one) => one.dependency })),
    total.failures || Object.keys(total.waits).length ? h("div", { class: "pair", data: { key: "why" } }, failures(total), waits(total)) : null,
    h("details", { data: { key: "table" } }, h("summary", {}, "The charts as a table"),
      table("Metrics by time", COLUMNS, points.filter((point) => point.attempts || point.started || point.ended || point.openings), { keyOf: (one) => one.at }),
      pager(path, query, { items: points, next_cursor: null }, COLUMNS, "metrics")),
  ];
}

function totals({ total, from, to }) {
  const seconds = (Date.parse(to) - Date.parse(from)) / 1000;
  return h("div", { class: "figures", data: { key: "figures" } },
    figure(number(total.attempts), "attempts", { note: perTime(total.attempts, seconds) }),
    figure(percent(total.attempts ? total.failures / total.attempts : null), "of attempts failed", { kind: total.failures ? "is-dead_lettered" : "" }),
    figure(total.amplification === null ? "–" : `× ${total.amplification.toFixed(2)}`, "attempts for each first one", { note: plural(total.retries, "retry", "retries") }),
    figure(number(total.ended), "operations ended", { note: perTime(total.ended, seconds) }),
    figure(number(total.openings), total.openings === 1 ? "circuit opening" : "circuit openings", { kind: total.openings ? "is-open" : "" }));
}

/** A count as a rate that is no tiny fraction, as [rate, unit]. */
export function rateOf(count, seconds) {
  if (!count || !(seconds > 0)) return ["0", "min"];
  const [unit, rate] = [["s", count / seconds], ["min", (count / seconds) * 60], ["h", (count / seconds) * 3600]].find(([name, value]) => value >= 1 || name === "h");
  return [rate < 10 ? String(Number(rate.toFixed(1))) : number(Math.round(rate)), unit];
}

const perTime = (count, seconds) => (count ? rateOf(count, seconds).join(" per ") : null);

export const inMs = (milliseconds) => (milliseconds === null || milliseconds === undefined ? "–" : duration(milliseconds / 1000));

// A chart: what `draw` makes of the points, their highest value, the openings of circuits, and the axis.

const PERCENTILES = { title: "p50 and p95", legend: [["p50", "running"], ["p95", "waiting_retry"]] };

function chart({ points, step_seconds: step, total }, draw, { title, legend }) {
  const { most, text, marks } = draw(points);
  const width = points.length * WIDTH;
  const openings = total.openings ? `; ${plural(total.openings, "circuit opening")}` : "";
  return h("figure", { class: "over-time" },
    h("ul", { class: "keys", "aria-hidden": "true" }, legend.map(([name, kind]) => h("li", { class: `key-${kind}` }, name)), total.openings ? h("li", { class: "key-opening" }, "circuit opened") : null),
    h("div", { class: "plot" }, h("span", { class: "most dim", "aria-hidden": "true" }, text), s("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title} in steps of ${duration(step)}, at most ${text}${openings}; the table below has every value` },
      points.map((point, index) => s("g", {}, s("title", {}, pointWords(point)), s("rect", { x: index * WIDTH, y: 0, width: WIDTH, height: HEIGHT, class: "reach" }))),
      marks(most),
      points.map((point, index) => (point.openings ? s("line", { x1: (index + 0.5) * WIDTH, x2: (index + 0.5) * WIDTH, y1: 0, y2: HEIGHT, class: "opening" }) : null)),
      s("line", { x1: 0, x2: width, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5, class: "ground" }))),
    h("div", { class: "axis", "aria-hidden": "true" }, h("span", {}, time(points[0].at)), h("span", {}, `${duration(step)} each`),
      h("span", {}, time(new Date(Date.parse(points.at(-1).at) + step * 1000).toISOString()))));
}

function pointWords(point) {
  return [time(point.at), plural(point.attempts, "attempt"), point.failures ? `${number(point.failures)} failed` : null, point.retries ? plural(point.retries, "retry", "retries") : null,
    point.attempt_ms.p95 === null ? null : `attempts p50 ${inMs(point.attempt_ms.p50)}, p95 ${inMs(point.attempt_ms.p95)}`,
    point.operation_ms.p95 === null ? null : `operations p50 ${inMs(point.operation_ms.p50)}, p95 ${inMs(point.operation_ms.p95)}`,
    point.openings ? `circuit opened${point.openings > 1 ? ` ${point.openings} times` : ""}` : null].filter(Boolean).join("\n");
}

const heightOf = (value, most) => (most ? (value / most) * (HEIGHT - ROOM) : 0);

function attemptBars(points) {
  const most = Math.max(...points.map((point) => point.attempts));
  const bar = (point, index) => {
    const [all, bad] = [heightOf(point.attempts, most), heightOf(point.failures, most)];
    return [s("rect", { x: index * WIDTH + 1, y: HEIGHT - all, width: WIDTH - 2, height: all - bad, class: "fill-succeeded" }),
      s("rect", { x: index * WIDTH + 1, y: HEIGHT - bad, width: WIDTH - 2, height: bad, class: "fill-dead_lettered" })];
  };
  return { most, text: number(most), marks: () => [points.map(bar), steps(points.map((point) => (point.attempts ? point.retries : null)), most, "line-waiting_retry")] };
}

const times = (name) => (points) => {
  const most = Math.max(0, ...points.map((point) => point[name].p95 ?? 0));
  return { most, text: inMs(most || null), marks: () => [["p50", "running"], ["p95", "waiting_retry"]].map(([share, kind]) => steps(points.map((point) => point[name][share]), most, `line-${kind}`)) };
};

/** A line that is level within a step and broken where there is no value. */
function steps(values, most, kind) {
  let path = "";
  values.forEach((value, index) => {
    if (value === null) return;
    const y = (HEIGHT - heightOf(value, most)).toFixed(2);
    const isJoined = index > 0 && values[index - 1] !== null;
    path += `${isJoined ? `V${y}` : `M${index * WIDTH} ${y}`}H${(index + 1) * WIDTH}`;
  });
  return path ? s("path", { d: path, class: `trace ${kind}` }) : null;
}

// Tables.

const FIGURES = [
  { name: "Accepted", class: "number", cell: (one) => number(one.started), text: (one) => one.started },
  { name: "Attempts", class: "number", cell: (one) => number(one.attempts), text: (one) => one.attempts },
  { name: "Failed", class: "number", cell: (one) => number(one.failures), text: (one) => one.failures },
  { name: "Retries", class: "number", cell: (one) => number(one.retries), text: (one) => one.retries },
  { name: "Amplification", class: "number", cell: (one) => (one.amplification === null ? "–" : `× ${one.amplification.toFixed(2)}`), text: (one) => one.amplification },
  { name: "Attempt p50", class: "number", cell: (one) => inMs(one.attempt_ms.p50), text: (one) => one.attempt_ms.p50 },
  { name: "p95", class: "number", cell: (one) => inMs(one.attempt_ms.p95), text: (one) => one.attempt_ms.p95 },
  { name: "Operation p50", class: "number", cell: (one) => inMs(one.operation_ms.p50), text: (one) => one.operation_ms.p50 },
  { name: "Operation p95", class: "number", cell: (one) => inMs(one.operation_ms.p95), text: (one) => one.operation_ms.p95 },
  { name: "Openings", class: "number", cell: (one) => number(one.openings), text: (one) => one.openings },
];
const COLUMNS = [{ name: "From", cell: (one) => at(one.at), text: (one) => one.at }, ...FIGURES];

const byDependency = (query) => [
  { name: "Dependency", cell: (one) => h("a", { href: link("metrics", { ...query, dependency: one.dependency }) }, one.dependency), text: (one) => one.dependency },
  ...FIGURES,
];

function failures({ failures_by_category: by }) {
  const found = Object.entries(by).sort(([, a], [, b]) => b - a);
  return card("Failed attempts by category", found.length ? h("ul", { class: "lines" }, found.map(([category, count]) =>
    h("li", { data: { key: category } }, h("span", {}, words(category)), h("strong", {}, number(count))))) : h("p", { class: "empty" }, "None failed."));
}

const WAITS = { retry: "for a retry", circuit: "for the circuit", retry_budget: "for the retry budget", limit: "for a limit", own_failure: "after failures of this side" };

function waits({ waits: by }) {
  const found = Object.entries(by);
  return card("Waits", found.length ? h("ul", { class: "lines" }, found.map(([kind, { count, seconds }]) =>
    h("li", { data: { key: kind } }, h("span", {}, `${plural(count, "wait")} ${WAITS[kind] ?? kind}`), h("span", { class: "dim" }, `${duration(seconds / count)} on average`)))) : h("p", { class: "empty" }, "Nothing waited."));
}
