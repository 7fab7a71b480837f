// Operations as a list.

import { get } from "../api.js";
import { h } from "../dom.js";
import { ago, number, until, words } from "../format.js";
import { filters, pageQuery, pager, table } from "../parts/list.js";
import { badge, circuitLink, operationLink, STATES } from "../parts/pieces.js";

const COLUMNS = [
  { name: "State", cell: (one) => badge(one.status), text: (one) => one.status },
  { name: "Key", class: "wide", cell: (one) => operationLink(one.operation_id, one.key), text: (one) => one.key },
  { name: "Dependency", cell: (one) => circuitLink(one.dependency), text: (one) => one.dependency },
  { name: "Attempts", class: "number", cell: (one) => number(one.attempt_count), text: (one) => one.attempt_count },
  { name: "Next attempt", cell: (one) => until(one.next_attempt_at), text: (one) => one.next_attempt_at },
  { name: "Last error", class: "wide", cell: (one) => h("span", { class: "clip", title: errorOf(one) }, errorOf(one)), text: errorOf },
  { name: "Accepted", cell: (one) => ago(one.created_at), text: (one) => one.created_at },
  { name: "Changed", cell: (one) => ago(one.updated_at), text: (one) => one.updated_at },
  { name: "Operation", class: "hidden", cell: () => "", text: (one) => one.operation_id },
  { name: "Correlation", class: "hidden", cell: () => "", text: (one) => one.correlation_id },
];
const SHOWN = COLUMNS.filter((column) => column.class !== "hidden");

function errorOf(one) {
  if (one.status === "succeeded") return "";
  return one.attempts.findLast((attempt) => attempt.category)?.error ?? "";
}

export function operationsView({ path, query }) {
  return {
    title: "Operations",
    load: (signal) => get("operations", pageQuery(query, ["status", "dependency", "created_after"]), signal),
    render: (page) => [
      filters(path, query, [
        { name: "status", label: "State", choices: STATES.map((state) => [state, words(state)]) },
        { name: "dependency", label: "Dependency" },
        { name: "created_after", label: "Accepted after (UTC)", instant: true },
      ]),
      table("Operations", SHOWN, page.items, { keyOf: (one) => one.operation_id, empty: page.next_cursor ? "None among those looked at so far; go on with the next page." : "No operation matches." }),
      pager(path, query, page, COLUMNS, "operations"),
    ],
  };
}
