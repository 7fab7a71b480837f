// A circuit's failure ratio since the page was opened, with the ratio at which it opens.

import { h, s } from "../dom.js";
import { percent, time } from "../format.js";

const [WIDTH, HEIGHT] = [1000, 100];
const LEAST_MS = 60_000;

/** The chart of readings from `seen.js`; `threshold` may be undefined. */
export function ratioChart(readings, threshold) {
  if (readings.length < 2) return h("p", { class: "dim" }, "The chart begins with the second reading.");
  const to = readings.at(-1).at;
  const from = Math.min(readings[0].at, to - LEAST_MS);
  const x = (at) => ((at - from) / (to - from)) * WIDTH;
  const y = (ratio) => HEIGHT - 2 - ratio * (HEIGHT - 4);
  return h("figure", { class: "line-chart" },
    s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `Failure ratio, now ${percent(readings.at(-1).ratio)}` },
      blocks(readings, x), runs(readings).map((run) => curve(run, x, y)),
      threshold ? s("line", { x1: 0, x2: WIDTH, y1: y(threshold), y2: y(threshold), class: "threshold" }) : null),
    h("div", { class: "axis" }, h("span", {}, time(new Date(from).toISOString())), h("span", {}, threshold ? `opens at ${percent(threshold)}` : "failure ratio"), h("span", {}, "now")));
}

/** Readings in a row that have a ratio: an empty window has none, and no line. */
function runs(readings) {
  const found = [[]];
  for (const one of readings) {
    if (one.ratio !== null) found.at(-1).push(one);
    else if (found.at(-1).length) found.push([]);
  }
  return found.filter((run) => run.length > 1);
}

function curve(run, x, y) {
  const points = run.map((one) => `${x(one.at).toFixed(1)},${y(one.ratio).toFixed(1)}`).join(" ");
  const area = `${x(run[0].at)},${HEIGHT} ${points} ${x(run.at(-1).at)},${HEIGHT}`;
  return [s("polygon", { points: area, class: "area" }), s("polyline", { points, class: "line" })];
}

/** Where the circuit was not closed, as a shade behind the line. */
function blocks(readings, x) {
  return readings.slice(1).filter((one) => one.state !== "closed" && one.state !== "disabled").map((one) => {
    const before = readings[readings.indexOf(one) - 1];
    return s("rect", { x: x(before.at), y: 0, width: x(one.at) - x(before.at), height: HEIGHT, class: `shade is-${one.state}` });
  });
}
