// Every dependency's circuit.

import { h } from "../dom.js";
import { number, percent, until, words } from "../format.js";
import { circuitCard, circuitsWithSettings } from "../parts/circuit_card.js";
import { pager, table } from "../parts/list.js";
import { badge, circuitLink } from "../parts/pieces.js";
import { Paced } from "../poll.js";
import { COUNT_SECONDS, countedOperations, WINDOWS } from "../recent.js";

const COLUMNS = [
  { name: "Dependency", cell: (one) => circuitLink(one.dependency), text: (one) => one.dependency },
  { name: "State", cell: (one) => badge(one.state), text: (one) => one.state },
  { name: "Failing", class: "number", cell: (one) => percent(one.failure_ratio), text: (one) => one.failure_ratio },
  { name: "Calls", class: "number", cell: (one) => number(one.calls), text: (one) => one.calls },
  { name: "Slow", class: "number", cell: (one) => number(one.slow_calls), text: (one) => one.slow_calls },
  { name: "Tried again", cell: (one) => until(one.retry_at), text: (one) => one.retry_at },
  { name: "Why", class: "wide", cell: (one) => words(one.reason), text: (one) => one.reason },
  { name: "By", cell: (one) => one.changed_by ?? "–", text: (one) => one.changed_by },
];

export function circuitsView({ path, query }) {
  const counted = new Paced((signal) => countedOperations(WINDOWS[0][0], signal), COUNT_SECONDS);
  return {
    title: "Circuits",
    load: async (signal, update) => {
      const circuits = await circuitsWithSettings(signal);
      counted.ask(signal, () => update(circuits));
      return circuits;
    },
    render: (circuits) => [
      h("div", { class: "circuits" }, circuits.map((circuit) => circuitCard(circuit, counted.value?.error ? null : counted.value))),
      h("details", { data: { key: "table" } }, h("summary", {}, "As a table"),
        table("Circuits", COLUMNS, circuits, { keyOf: (one) => one.dependency, empty: "No dependency is configured." }),
        pager(path, query, { items: circuits, next_cursor: null }, COLUMNS, "circuits")),
    ],
  };
}
