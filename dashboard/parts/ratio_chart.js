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
  const y = (ratio) => HEIGHT - 2 - (ratio ?? 0) * (HEIGHT - 4);
  const points = readings.map((one) => `${x(one.at).toFixed(1)},${y(one.ratio).toFixed(1)}`);
  const area = `${x(readings[0].at)},${HEIGHT} ${points.join(" ")} ${WIDTH},${HEIGHT}`;
  return h("figure", { class: "line-chart" },
    s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `Failure ratio, now ${percent(readings.at(-1).ratio)}` },
      blocks(readings, x), s("polygon", { points: area, class: "area" }), s("polyline", { points: points.join(" "), class: "line" }),
      threshold ? s("line", { x1: 0, x2: WIDTH, y1: y(threshold), y2: y(threshold), class: "threshold" }) : null),
    h("div", { class: "axis" }, h("span", {}, time(new Date(from).toISOString())), h("span", {}, threshold ? `opens at ${percent(threshold)}` : "failure ratio"), h("span", {}, "now")));
}

/** Where the circuit was not closed, as a shade behind the line. */
function blocks(readings, x) {
  return readings.slice(1).filter((one) => one.state !== "closed" && one.state !== "disabled").map((one) => {
    const before = readings[readings.indexOf(one) - 1];
    return s("rect", { x: x(before.at), y: 0, width: x(one.at) - x(before.at), height: HEIGHT, class: `shade is-${one.state}` });
  });
}
