// Operations by state over time, as stacked bars.

import { h, s } from "../dom.js";
import { number, time, words } from "../format.js";
import { STATES } from "./pieces.js";

const HEIGHT = 100;
// From the ground up: what went well lies low, what needs a look lies on top.
const ORDER = ["succeeded", "cancelled", "pending", "running", "waiting_retry", "waiting_circuit", "dead_lettered"];

const total = (counts) => STATES.reduce((sum, state) => sum + counts[state], 0);

/** Bars of operations by the time of acceptance, of a summary's buckets. */
export function stateBars({ buckets, by_status: counts, from, to }) {
  if (!STATES.some((state) => counts[state])) return h("p", { class: "empty" }, "None in this time.");
  const most = Math.max(...buckets.map((bucket) => total(bucket.by_status)));
  const told = STATES.filter((state) => counts[state]).map((state) => `${number(counts[state])} ${words(state).toLowerCase()}`);
  const [begin, end] = [Date.parse(from), Date.parse(to)];
  return h("figure", { class: "bars" },
    h("span", { class: "most dim", "aria-hidden": "true" }, number(most)),
    s("svg", { viewBox: `0 0 ${buckets.length * 10} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": told.join(", ") },
      s("line", { x1: 0, x2: buckets.length * 10, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5, class: "ground" }),
      buckets.map((bucket, index) => stack(bucket, index, most))),
    h("div", { class: "axis", "aria-hidden": "true" }, [0, 0.5, 1].map((part) => h("span", {}, time(new Date(begin + (end - begin) * part).toISOString())))));
}

function stack({ from, by_status: counts }, index, most) {
  const shown = ORDER.filter((state) => counts[state]);
  const told = shown.map((state) => `${number(counts[state])} ${words(state).toLowerCase()}`).join("\n");
  let top = HEIGHT;
  const parts = shown.map((state) => {
    const height = (counts[state] / most) * (HEIGHT - 4);
    top -= height;
    return s("rect", { x: index * 10 + 1, y: top, width: 8, height, class: `fill-${state}` });
  });
  return s("g", {}, s("title", {}, `${time(from)}\n${told || "none"}`), s("rect", { x: index * 10, y: 0, width: 10, height: HEIGHT, class: "reach" }), parts);
}
