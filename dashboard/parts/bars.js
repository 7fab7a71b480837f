// Operations by state over time, as stacked bars.

import { h, s } from "../dom.js";
import { number, time, words } from "../format.js";
import { counted } from "../recent.js";
import { STATES } from "./pieces.js";

const BINS = 48;
const HEIGHT = 100;
// From the ground up: what went well lies low, what needs a look lies on top.
const ORDER = ["succeeded", "cancelled", "pending", "running", "waiting_retry", "waiting_circuit", "dead_lettered"];

/** Bars of operations by the time of acceptance, for the `length` milliseconds before `present`. */
export function stateBars(items, present, length) {
  // Bars stand at whole multiples of their width, so that they do not change shape as time goes on.
  const width = length / BINS;
  const to = Math.ceil(present / width) * width;
  const from = to - length;
  const bins = Array.from({ length: BINS }, () => []);
  for (const item of items) {
    const index = Math.floor(((Date.parse(item.created_at) - from) / (to - from)) * BINS);
    bins[Math.max(0, Math.min(BINS - 1, index))].push(item);
  }
  const most = Math.max(1, ...bins.map((bin) => bin.length));
  const told = STATES.map((state) => [state, counted(items)[state]]).filter(([, count]) => count);
  const label = told.length ? told.map(([state, count]) => `${number(count)} ${words(state).toLowerCase()}`).join(", ") : "No operations";
  return h("figure", { class: "bars" },
    h("span", { class: "most dim", "aria-hidden": "true" }, number(most)),
    s("svg", { viewBox: `0 0 ${BINS * 10} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
      s("line", { x1: 0, x2: BINS * 10, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5, class: "ground" }),
      bins.map((bin, index) => stack(bin, index, most))),
    h("div", { class: "axis", "aria-hidden": "true" }, [0, 0.5, 1].map((part) => h("span", {}, time(new Date(from + (to - from) * part).toISOString())))));
}

function stack(bin, index, most) {
  const counts = counted(bin);
  let top = HEIGHT;
  return ORDER.filter((state) => counts[state]).map((state) => {
    const height = (counts[state] / most) * (HEIGHT - 4);
    top -= height;
    return s("rect", { x: index * 10 + 1, y: top, width: 8, height, class: `fill-${state}` }, s("title", {}, `${number(counts[state])} ${words(state).toLowerCase()}`));
  });
}
