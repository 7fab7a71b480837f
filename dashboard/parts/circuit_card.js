// A dependency at a glance: its circuit, how much fails, who waits, when it is tried again.

import { get } from "../api.js";
import { h } from "../dom.js";
import { number, percent, until } from "../format.js";
import { atLeast, waitingIn } from "../recent.js";
import { link } from "../route.js";
import { badge } from "./pieces.js";

/** Every circuit with its dependency's `settings`; null when those do not answer. */
export async function circuitsWithSettings(signal) {
  const [circuits, dependencies] = await Promise.all([
    get("circuits", {}, signal),
    get("dependencies", {}, signal).catch(() => ({ items: [] })),
  ]);
  const settings = new Map(dependencies.items.map((one) => [one.name, one]));
  const all = circuits.items.map((circuit) => ({ ...circuit, settings: settings.get(circuit.dependency) ?? null }));
  return all.sort((a, b) => URGENCY[a.state] - URGENCY[b.state] || a.dependency.localeCompare(b.dependency));
}

/** What ails comes first. */
const URGENCY = { open: 0, forced_open: 0, half_open: 1, disabled: 2, closed: 3 };

/** A card that leads to the circuit's page. `counted` is the summary of operations; null when not known. */
export function circuitCard(circuit, counted) {
  return h("a", { class: `circuit is-${circuit.state}`, href: link(`circuits/${encodeURIComponent(circuit.dependency)}`), data: { key: circuit.dependency } },
    h("span", { class: "circuit-name" }, h("strong", {}, circuit.dependency), badge(circuit.state)),
    ratioBar(circuit),
    h("span", { class: "circuit-numbers" },
      pair(percent(circuit.failure_ratio), "failing"), pair(number(circuit.calls), plainPlural(circuit.calls, "call")), pair(waitingFor(circuit, counted), "waiting"), pair(amplificationOf(circuit, counted), "attempts", "Attempts per operation: the retry amplification")),
    next(circuit));
}

const plainPlural = (count, one) => (count === 1 ? one : `${one}s`);

/** Operations of a dependency that wait, for a retry or for the circuit. */
export function waitingFor(circuit, counted) {
  if (!counted) return "–";
  const { by_dependency: by, complete } = counted.unfinished;
  return atLeast(number(waitingIn(by[circuit.dependency])), complete);
}

/** Attempts per operation of a dependency in the time that was counted: the retry amplification. */
export function amplificationOf(circuit, counted) {
  const ratio = counted?.by_dependency[circuit.dependency]?.amplification ?? null;
  return ratio === null ? "–" : `× ${ratio.toFixed(2)}`;
}

const pair = (value, name, title = null) => h("span", { title }, h("b", {}, value), " ", h("small", {}, name));

/** What is next for a circuit, as a line; null when nothing is. */
export function next(circuit) {
  if (circuit.throttled_until) return h("span", { class: "circuit-next" }, "asked to be left alone, ends ", until(circuit.throttled_until));
  if (circuit.state === "half_open") return h("span", { class: "circuit-next" }, "a probe is under way");
  if (circuit.retry_at) return h("span", { class: "circuit-next" }, circuit.state === "open" ? "next probe " : "held, ends ", until(circuit.retry_at));
  if (circuit.state === "forced_open") return h("span", { class: "circuit-next" }, "held until a person closes it");
  return null;
}

/** The failure ratio beside the ratio at which the circuit opens. */
export function ratioBar(circuit) {
  const threshold = circuit.settings?.circuit?.failure_ratio ?? null;
  const style = (ratio) => ({ width: `${Math.round((ratio ?? 0) * 100)}%` });
  return h("span", { class: "ratio", "aria-hidden": "true" }, h("span", { class: "ratio-fill", style: style(circuit.failure_ratio) }),
    threshold === null ? null : h("span", { class: "ratio-mark", style: { left: `${threshold * 100}%` } }));
}
