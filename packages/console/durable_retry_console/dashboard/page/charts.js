// Charts: operations by state over time, calls of a circuit, and the life of one operation to scale.

import { h, s } from "./dom.js";
import { at, duration, now, number, percent, plural, said, time, until, words } from "./format.js";
import { overTime } from "./over_time.js";
import { empty, endWords, FINISHED, isHeldByPolicy } from "./pieces.js";

// From the ground up: what went well lies low, what needs a look lies on top.
const ORDER = ["succeeded", "cancelled", "pending", "scheduled", "paused", "running", "waiting_retry", "waiting_throttle", "waiting_circuit", "waiting_order", "dead_lettered"];

/** Bars of operations by the time of acceptance, of a summary's buckets; `zoom(from, to)` looks closer at a span. */
export function stateBars({ buckets, by_status: counts, from, to }, zoom) {
  const points = buckets.map((bucket) => ({ ...bucket, at: bucket.from }));
  const ends = points[1]?.at ?? to;
  const layers = ORDER.filter((state) => counts[state]).map((state) => ({ name: words(state).toLowerCase(), kind: state, isBar: true, values: points.map((point) => point.by_status[state]) }));
  const title = layers.map(({ name, kind }) => `${number(counts[kind])} ${name}`).join(", ");
  return overTime({ title, points, seconds: Math.max(1, (Date.parse(ends) - Date.parse(points[0]?.at ?? from)) / 1_000), layers, zoom, isNamed: false });
}

// A circuit's window: the calls of its ten parts, and how many of them failed.

const [CALL_WIDTH, CALL_HEIGHT, ROOM] = [100, 100, 6];

/**
 * The chart of a window from the data of `GET circuits`.
 *
 * `threshold` is the share of failures that opens the circuit; null draws no mark.
 */
export function callWindow({ bucket_seconds: seconds, buckets }, threshold) {
  const most = Math.max(1, ...buckets.map((bucket) => bucket.calls));
  const sum = (name) => buckets.reduce((all, bucket) => all + bucket[name], 0);
  const [calls, failures] = [sum("calls"), sum("failures")];
  const label = `${plural(calls, "call")}, ${number(failures)} failed (${percent(failures / calls)})`;
  if (!calls) return empty(`No calls in the last ${duration(seconds * buckets.length)}.`);
  return h("figure", { class: "call-window" },
    h("figcaption", { class: "dim" }, `${label} in ${duration(seconds * buckets.length)}${threshold ? `; opens at ${percent(threshold)}` : ""}`),
    h("div", { class: "plot" },
      h("span", { class: "most dim", "aria-hidden": "true" }, number(most)),
      s("svg", { viewBox: `0 0 ${buckets.length * CALL_WIDTH} ${CALL_HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}: ${buckets.map(wordsOf).join("; ")}` },
        buckets.map((bucket, index) => column(bucket, index, most, threshold)),
        s("line", { x1: 0, x2: buckets.length * CALL_WIDTH, y1: CALL_HEIGHT - 0.5, y2: CALL_HEIGHT - 0.5, class: "ground" }))),
    h("div", { class: "axis", "aria-hidden": "true" }, h("span", {}, time(buckets[0].from)),
      h("span", {}, `${duration(seconds)} each`), h("span", {}, time(new Date(Date.parse(buckets.at(-1).from) + seconds * 1000).toISOString()))));
}

const wordsOf = ({ from, calls, failures, slow_calls: slow }) =>
  `${time(from)} ${plural(calls, "call")}${failures ? `, ${number(failures)} failed` : ""}${slow ? `, ${number(slow)} slow` : ""}`;

function column(bucket, index, most, threshold) {
  const scale = (count) => (count / most) * (CALL_HEIGHT - ROOM);
  const [x, tall, bad] = [index * CALL_WIDTH, scale(bucket.calls), scale(bucket.failures)];
  return s("g", {}, s("title", {}, wordsOf(bucket)),
    s("rect", { x, y: 0, width: CALL_WIDTH, height: CALL_HEIGHT, class: "reach" }),
    s("rect", { x: x + 8, y: CALL_HEIGHT - tall, width: CALL_WIDTH - 16, height: tall - bad, class: "fill is-succeeded" }),
    s("rect", { x: x + 8, y: CALL_HEIGHT - bad, width: CALL_WIDTH - 16, height: bad, class: "fill is-dead_lettered" }),
    threshold && bucket.calls ? s("line", { x1: x + 4, x2: x + CALL_WIDTH - 4, y1: CALL_HEIGHT - tall * threshold, y2: CALL_HEIGHT - tall * threshold, class: "threshold" }) : null);
}

// An operation's life to scale: attempts, waits with their reasons, and what is next.

const WIDTH = 1000;
const LEAST = 3; // An attempt of 40 ms among waits of hours is still seen.

/** The spans of an operation's document or of a dead letter: `{kind, from, to, ...}` in milliseconds. */
function spansOf(document) {
  const attempts = document.attempts ?? [];
  const spans = [];
  let last = Date.parse(document.created_at ?? document.first_failed_at);
  attempts.forEach((attempt, index) => {
    const from = Date.parse(attempt.started_at);
    spans.push(...waitsBetween(document, attempts[index - 1], attempt.number, last, from));
    last = from + attempt.duration_ms;
    spans.push({ kind: attempt.category ? "failed" : "succeeded", from, to: last, attempt });
  });
  const { next_attempt_at: next, status } = document;
  // Nobody can say when the turn of one comes that waits in a lane.
  const end = next ? Date.parse(next) : status === "waiting_order" ? now() : null;
  const pending = next && { at: next, words: endWords(document) };
  if (isHeldByPolicy(document)) spans.push({ kind: "pause", from: last, to: end, reasons: [], times: 1, pending });
  else if (end) spans.push(...waitsBetween(document, attempts.at(-1), document.attempt_count + 1, last, end, pending));
  return spans;
}

function waitsBetween(document, before, number, from, to, pending = null) {
  const held = (document.waits ?? []).filter((wait) => wait.before_attempt === number);
  const spread = (all) => all
    .map((wait, index) => ({ ...wait, to: all[index + 1]?.from ?? to, pending: index === all.length - 1 ? pending : null }))
    .filter((wait) => wait.to - wait.from >= (wait.kind === "queued" ? 250 : 1));
  const edges = held.map((wait) => ({ kind: wait.kind, from: Date.parse(wait.began_at), reasons: wait.delay_reasons, times: wait.times }));
  // Of an operation the pause after an attempt is a wait like any other; of a dead letter only the attempt has it.
  if (before && edges.length && Math.abs(edges[0].from - from) < 2) return spread(edges);
  const first = before ? { kind: before.category === "throttled" ? "throttle" : "retry", from, reasons: before.delay_reasons ?? [], times: 1 } : { kind: "queued", from, reasons: [], times: 1 };
  const isKnown = before || number === 1; // Of many attempts only the last are kept.
  return spread(isKnown ? [first, ...edges] : edges);
}

/** The drawing, and a list with the same content. */
export function timeline(document) {
  const spans = spansOf(document);
  if (!spans.length) return empty("No attempt was made.");
  const isOver = !document.status || FINISHED.includes(document.status) || !document.operation_id;
  const begin = Math.min(...spans.map((span) => span.from));
  const end = Math.max(...spans.map((span) => span.to), isOver ? 0 : now(), begin + 1);
  const scale = (instant) => ((instant - begin) / (end - begin)) * WIDTH;
  const dropped = (document.attempt_count ?? 0) - (document.attempts?.length ?? 0);
  return h("div", { class: "timeline" }, strip(spans, scale, isOver ? null : now()), axis(begin, end),
    dropped > 0 ? h("p", { class: "dim" }, `The first ${dropped} attempts are no longer stored.`) : null,
    h("ol", {}, spans.map((span) => entry(span, scale))));
}

function strip(spans, scale, present) {
  return s("svg", { viewBox: `0 0 ${WIDTH} 40`, preserveAspectRatio: "none", class: "strip", "aria-hidden": "true" },
    spans.filter((span) => !span.attempt).map((span) => bar(span, scale, 14, 12)),
    spans.filter((span) => span.attempt).map((span) => bar(span, scale, 4, 32)),
    present ? s("line", { x1: scale(present), x2: scale(present), y1: 0, y2: 40, class: "present" }) : null);
}

function bar(span, scale, y, height) {
  const x = scale(span.from);
  const width = Math.max(span.attempt ? LEAST : 0.5, scale(span.to) - x);
  return s("rect", { x: Math.min(x, WIDTH - width), y, width, height, class: `span is-${stateOf(span)}` });
}

function axis(begin, end) {
  // Labels are whole milliseconds: a shorter span has room for fewer of them.
  const parts = [4, 2, 1].find((count) => count <= end - begin);
  const marks = Array.from({ length: parts + 1 }, (_, index) => index / parts);
  return h("div", { class: "axis", "aria-hidden": "true" },
    marks.map((part) => h("span", {}, part === 0 ? "0 s" : `+${duration(((end - begin) * part) / 1000)}`)));
}

function entry(span, scale) {
  const small = s("svg", { viewBox: `0 0 ${WIDTH} 6`, preserveAspectRatio: "none", class: "place", "aria-hidden": "true" }, bar(span, scale, 0, 6));
  return h("li", { class: `entry is-${span.kind}` }, span.attempt ? attemptWords(span) : waitWords(span), small);
}

function attemptWords({ attempt, kind }) {
  const outcome = kind === "succeeded" ? "succeeded" : words(attempt.category).toLowerCase();
  return h("div", { class: "said" }, h("strong", {}, `Attempt ${attempt.number}`),
    h("span", { class: `outcome is-${kind}` }, [attempt.status_code, outcome, attempt.dependency ? `at ${attempt.dependency}` : ""].filter(Boolean).join(" ")),
    h("span", { class: "dim" }, at(attempt.started_at), ` · ${duration(attempt.duration_ms / 1000)}`),
    attempt.error ? h("p", {}, attempt.error) : null);
}

/** What each kind of wait is for, and the state whose colour it has. */
export const WAITS = {
  queued: ["to begin", "pending"],
  retry: ["for a retry", "waiting_retry"],
  throttle: ["for the end of a pause", "waiting_throttle"],
  circuit: ["for the circuit", "waiting_circuit"],
  freeze: ["for a thaw", "waiting_circuit"],
  retry_budget: ["for the retry budget", "cancelled"],
  limit: ["for a limit", "running"],
  order: ["for a turn", "waiting_order"],
  accepted: ["for the work behind a 202", "running"],
  lookup: ["for a lookup", "waiting_retry"],
  fallback: ["before a fallback was asked", "waiting_circuit"],
  start: ["to begin", "scheduled"],
  pause: ["for somebody to resume it", "paused"],
  own_failure: ["after a failure of the app itself", "paused"],
};

const stateOf = ({ kind }) => WAITS[kind]?.[1] ?? (kind === "failed" ? "dead_lettered" : kind);

function waitWords({ kind, from, to, reasons, times, pending }) {
  const lasted = duration(Math.max(0, (pending ? Math.min(to, now()) : to) - from) / 1000);
  const name = `${pending ? "Has waited" : "Waited"} ${lasted} ${WAITS[kind][0]}`;
  return h("div", { class: "said" }, h("strong", {}, name),
    pending ? h("span", { class: "countdown" }, pending.words, until(pending.at)) : null,
    times > 1 ? h("span", { class: "dim" }, `refused ${times} times`) : null,
    reasons.length ? h("p", {}, said(reasons.join("; "))) : null);
}
