// Charts over time: axes in the page's zone, the values under the pointer or the arrow keys, a span to look closer at,
// and marks of what happened. A drawing is SVG that is stretched; its texts are HTML beside it, which is not.

import { announce, h, s } from "./dom.js";
import { duration, now, number, span, tickText, ticksOf } from "./format.js";

const [WIDTH, HEIGHT] = [10, 100]; // Of a step, and of a drawing.

/** How values are written, and where their axis has its marks. */
const COUNTS = { write: number, steps: [1, 2, 5, 10] };
export const RATIOS = { write: (value) => `× ${Number(value.toFixed(2))}`, steps: [0.1, 0.2, 0.5, 1, 2, 5, 10] };
export const MEANS = { write: (value) => number(Number(value.toFixed(2))), steps: [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10] };
const S = 1_000;
/** Milliseconds. */
export const TIMES = { write: (value) => duration(value / S), steps: [1, 2, 5, 10, 20, 50, 100, 200, 500, S, 2 * S, 5 * S, 10 * S, 15 * S, 30 * S, 60 * S, 120 * S, 300 * S, 600 * S, 1_800 * S, ...[1, 2, 3, 6, 12, 24].map((hours) => hours * 3_600 * S)] };

/**
 * A chart.
 *
 * `points` have `at` and are `seconds` apart. A layer is {name, kind, values}, values being null where there are none;
 * those with `isBar` stand on each other, the others are lines. `marks` are {at, kind, text}. `zoom(from, to)` is called
 * with the instants of a span that was chosen, without it none can be. One that is not named leaves out its legend.
 */
export function overTime({ title, points, seconds, layers, scale = COUNTS, marks = [], zoom = null, isNamed = true }) {
  const begin = Date.parse(points[0].at);
  const step = seconds * 1_000;
  const bars = layers.filter((layer) => layer.isBar);
  const heights = points.map((_, index) => bars.reduce((sum, layer) => sum + (layer.values[index] ?? 0), 0));
  const most = Math.max(0, ...heights, ...layers.filter((layer) => !layer.isBar).flatMap((layer) => layer.values.map((value) => value ?? 0)));
  const ticks = valueTicks(most, scale);
  const chart = { points, step, begin, end: begin + points.length * step, top: ticks.at(-1), layers, bars, scale, marks: placed(marks, begin, step, points.length), zoom };
  const label = `${title} in steps of ${duration(seconds)}, at most ${scale.write(most)}${markWords(marks)}`;
  const kinds = [...new Set(marks.map((mark) => mark.kind))];
  return h("figure", { class: "over-time" },
    isNamed ? h("ul", { class: "keys", "aria-hidden": "true" },
      layers.map((layer) => h("li", { class: keyOf(layer) }, layer.name)), kinds.map((kind) => h("li", { class: `key-mark is-${kind}` }, MARKS[kind]))) : null,
    h("div", { class: "chart" },
      h("div", { class: "y-axis", "aria-hidden": "true" }, ticks.map((value) => h("span", { style: { bottom: `${(value / chart.top) * 100}%` } }, scale.write(value)))),
      h("div", { class: `plot${zoom ? " is-zoomed-by-dragging" : ""}`, tabindex: "0", role: "group", "aria-label": `${title}: arrow keys read the values${zoom ? ", with Shift they choose a span, Enter looks closer at it" : ""}`, on: handlersOf(chart) },
        drawing(chart, label, ticks),
        chart.marks.map((mark) => h("span", { class: `mark is-${mark.kind}`, style: { left: `${mark.place * 100}%` } })),
        h("span", { class: "cross", data: { key: "cross" } }), h("span", { class: "brush", hidden: true, data: { keep: "", key: "brush" } }), h("div", { class: "tip", hidden: true, "aria-hidden": "true", data: { keep: "", key: "tip" } })),
      timeAxis(begin, chart.end)));
}

const keyOf = ({ kind, isBar }) => (isBar ? `is-${kind}` : `key-line is-${kind}`);

/** What a mark is called. */
const MARKS = { opening: "circuit opened", deployment: "deployment", settings: "settings changed", bulk: "bulk action" };

const markWords = (marks) => {
  const counts = Map.groupBy(marks, (mark) => mark.kind);
  return [...counts].map(([kind, all]) => `; ${MARKS[kind]}: ${all.length}`).join("");
};

function placed(marks, begin, step, count) {
  return marks.map((mark) => ({ ...mark, place: (mark.at - begin) / (step * count), index: Math.floor((mark.at - begin) / step) })).filter(({ place }) => place >= 0 && place <= 1);
}

/** The times below a drawing. */
function timeAxis(begin, end) {
  const { times, isDays } = ticksOf(begin, end);
  return h("div", { class: "x-axis", "aria-hidden": "true" }, times.map((at) => h("span", { style: { left: `${((at - begin) / (end - begin)) * 100}%` } }, tickText(at, isDays))));
}

/** Values for an axis from nothing to at least `most`, at most five of them. */
function valueTicks(most, { steps }) {
  let [step] = steps;
  for (let power = 1; most / step > 4; power *= 10) {
    step = steps.map((one) => one * power).find((one) => most / one <= 4) ?? step;
  }
  const count = Math.max(1, Math.ceil(most / step));
  return Array.from({ length: count + 1 }, (_, index) => index * step);
}

function drawing({ points, top, layers, bars }, label, ticks) {
  const width = points.length * WIDTH;
  const y = (value) => HEIGHT - (value / top) * HEIGHT;
  const column = (_, index) => {
    let sum = 0;
    return bars.map(({ kind, values }) => {
      const value = values[index] ?? 0;
      sum += value;
      return value ? s("rect", { x: index * WIDTH + 1, y: y(sum), width: WIDTH - 2, height: (value / top) * HEIGHT, class: `fill is-${kind}` }) : null;
    });
  };
  return s("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    ticks.map((value) => s("line", { x1: 0, x2: width, y1: y(value), y2: y(value), class: value ? "grid" : "ground" })),
    points.map(column),
    layers.filter((layer) => !layer.isBar).map((layer) => trace(layer, y)));
}

/** A line that is level within a step and broken where there is no value. */
function trace({ kind, values }, y) {
  let path = "";
  values.forEach((value, index) => {
    if (value === null || value === undefined) return;
    const height = y(value).toFixed(2);
    const isJoined = index > 0 && values[index - 1] !== null && values[index - 1] !== undefined;
    path += `${isJoined ? `V${height}` : `M${index * WIDTH} ${height}`}H${(index + 1) * WIDTH}`;
  });
  return path ? s("path", { d: path, class: `trace is-${kind}` }) : null;
}

// The step that is looked at, and the one that a span began with. Outside the page's elements: those are drawn anew.
let [looked, anchor] = [null, null];

function handlersOf(chart) {
  const { points, zoom } = chart;
  const stepOf = (event) => {
    const { left, width } = event.currentTarget.getBoundingClientRect();
    return clamp(Math.floor(((event.clientX - left) / width) * points.length), points.length);
  };
  const look = (plot, index) => {
    looked = index;
    showValues(chart, plot, index);
    showBrush(chart, plot);
  };
  const leave = (plot) => {
    [looked, anchor] = [null, null];
    delete document.documentElement.dataset.looked;
    for (const part of plot.querySelectorAll(".tip, .brush")) part.hidden = true;
  };
  const closer = (plot) => {
    const [first, last] = [Math.min(anchor, looked), Math.max(anchor, looked)];
    leave(plot);
    zoom(new Date(chart.begin + first * chart.step).toISOString(), new Date(Math.min(now(), chart.begin + (last + 1) * chart.step)).toISOString());
  };
  return {
    pointermove: (event) => look(event.currentTarget, stepOf(event)),
    pointerleave: (event) => leave(event.currentTarget),
    pointerdown: (event) => {
      if (!zoom || event.button !== 0) return;
      event.currentTarget.setPointerCapture(event.pointerId);
      anchor = stepOf(event);
    },
    pointerup: (event) => {
      if (anchor !== null && anchor !== looked) closer(event.currentTarget);
      else anchor = null;
    },
    blur: (event) => leave(event.currentTarget),
    keydown: (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, Home: -points.length, End: points.length }[event.key];
      if (by) {
        const before = looked ?? (by > 0 ? -1 : points.length);
        anchor = zoom && event.shiftKey ? (anchor ?? clamp(before, points.length)) : null;
        look(event.currentTarget, clamp(before + by, points.length));
        announce(valuesOf(chart, looked).map(([name, value]) => `${name} ${value}`).join(", "));
      } else if (event.key === "Enter" && anchor !== null) closer(event.currentTarget);
      else if (event.key === "Escape") leave(event.currentTarget);
      else return;
      event.preventDefault();
    },
  };
}

const clamp = (index, count) => Math.min(Math.max(index, 0), count - 1);

/** The values of a step as [name, value, class]; its time first. */
function valuesOf({ points, step, layers, scale, marks }, index) {
  const begin = Date.parse(points[index].at);
  return [
    [span(begin, begin + step), "", null],
    ...layers.filter(({ values }) => values[index] !== null && values[index] !== undefined).map((layer) => [layer.name, scale.write(layer.values[index]), keyOf(layer)]),
    ...marks.filter((mark) => mark.index === index).map((mark) => [mark.text, "", `key-mark is-${mark.kind}`]),
  ];
}

function showValues(chart, plot, index) {
  const place = (index + 0.5) / chart.points.length;
  document.documentElement.dataset.looked = ""; // Every chart of the page shows the step.
  document.documentElement.style.setProperty("--looked", `${place * 100}%`);
  const tip = plot.querySelector(".tip");
  const [[when], ...values] = valuesOf(chart, index);
  tip.replaceChildren(h("strong", {}, when), ...values.map(([name, value, key]) => h("span", { class: key }, name, h("b", {}, value))));
  tip.hidden = false;
  tip.style.left = place > 0.5 ? "" : `calc(${place * 100}% + 0.75rem)`;
  tip.style.right = place > 0.5 ? `calc(${(1 - place) * 100}% + 0.75rem)` : "";
}

function showBrush({ points }, plot) {
  const brush = plot.querySelector(".brush");
  brush.hidden = anchor === null || anchor === looked;
  const first = Math.min(anchor ?? 0, looked);
  brush.style.left = `${(first / points.length) * 100}%`;
  brush.style.width = `${((Math.max(anchor ?? 0, looked) - first + 1) / points.length) * 100}%`;
}

/** Spans over time, a row each: `rows` are [name, spans], a span being {from, to, text} in milliseconds. */
export function spanRows({ title, begin, end, rows }) {
  const part = (at) => ((Math.min(Math.max(at, begin), end) - begin) / (end - begin)) * 100;
  const bar = ({ from, to, text }) => h("span", { class: "span-bar is-dead_lettered", style: { left: `${part(from)}%`, width: `${part(to) - part(from)}%` }, title: text });
  const label = ([name, spans]) => `${name}: ${spans.map(({ text }) => text).join(", ")}`;
  return h("figure", { class: "over-time span-rows" },
    h("div", { class: "chart" }, rows.map(([name, spans]) => [h("span", { class: "y-name" }, name), h("div", { class: "span-row", role: "img", "aria-label": label([name, spans]), data: { key: name } }, spans.map(bar), h("span", { class: "cross", data: { key: "cross" } }))]),
      timeAxis(begin, end)), h("figcaption", { class: "sr" }, title));
}
