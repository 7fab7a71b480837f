// A circuit's window: the calls of its ten parts, and how many of them failed.

import { h, s } from "../dom.js";
import { duration, number, percent, plural, time } from "../format.js";

const [WIDTH, HEIGHT, ROOM] = [100, 100, 6];

/**
 * The chart of a window as `GET circuits` tells it.
 *
 * `threshold` is the share of failures that opens the circuit; undefined draws no mark.
 */
export function callWindow({ bucket_seconds: seconds, buckets }, threshold) {
  const most = Math.max(1, ...buckets.map((bucket) => bucket.calls));
  const sum = (name) => buckets.reduce((all, bucket) => all + bucket[name], 0);
  const [calls, failures] = [sum("calls"), sum("failures")];
  const told = `${plural(calls, "call")}, ${number(failures)} failed (${percent(failures / calls)})`;
  if (!calls) return h("p", { class: "empty" }, `No call was heard of in the last ${duration(seconds * buckets.length)}.`);
  return h("figure", { class: "call-window" },
    h("figcaption", { class: "dim" }, `${told} in ${duration(seconds * buckets.length)}${threshold ? `; opens at ${percent(threshold)}` : ""}`),
    h("div", { class: "plot" },
      h("span", { class: "most dim", "aria-hidden": "true" }, number(most)),
      s("svg", { viewBox: `0 0 ${buckets.length * WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${told}: ${buckets.map(words).join("; ")}` },
        buckets.map((bucket, index) => column(bucket, index, most, threshold)),
        s("line", { x1: 0, x2: buckets.length * WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5, class: "ground" }))),
    h("div", { class: "axis", "aria-hidden": "true" }, h("span", {}, time(buckets[0].from)),
      h("span", {}, `${duration(seconds)} each`), h("span", {}, time(new Date(Date.parse(buckets.at(-1).from) + seconds * 1000).toISOString()))));
}

const words = ({ from, calls, failures, slow_calls: slow }) =>
  `${time(from)} ${plural(calls, "call")}${failures ? `, ${number(failures)} failed` : ""}${slow ? `, ${number(slow)} slow` : ""}`;

function column(bucket, index, most, threshold) {
  const scale = (count) => (count / most) * (HEIGHT - ROOM);
  const [x, tall, bad] = [index * WIDTH, scale(bucket.calls), scale(bucket.failures)];
  return s("g", {}, s("title", {}, words(bucket)),
    s("rect", { x, y: 0, width: WIDTH, height: HEIGHT, class: "reach" }),
    s("rect", { x: x + 8, y: HEIGHT - tall, width: WIDTH - 16, height: tall - bad, class: "fill-succeeded" }),
    s("rect", { x: x + 8, y: HEIGHT - bad, width: WIDTH - 16, height: bad, class: "fill-dead_lettered" }),
    threshold && bucket.calls ? s("line", { x1: x + 4, x2: x + WIDTH - 4, y1: HEIGHT - tall * threshold, y2: HEIGHT - tall * threshold, class: "threshold" }) : null);
}
