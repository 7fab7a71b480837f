// What this tab has seen of each circuit: the API tells the present, a chart wants the last minutes.

import { now } from "./format.js";

const KEPT = 360;
const samples = new Map();

/** Remember one reading of a circuit. */
export function remember(circuit) {
  const kept = samples.get(circuit.dependency) ?? [];
  if (kept.length && now() - kept.at(-1).at < 900) return;
  kept.push({ at: now(), ratio: circuit.failure_ratio, calls: circuit.calls, failures: circuit.failures, state: circuit.state });
  samples.set(circuit.dependency, kept.slice(-KEPT));
}

/** The readings of a dependency's circuit, oldest first. */
export const readings = (dependency) => samples.get(dependency) ?? [];
