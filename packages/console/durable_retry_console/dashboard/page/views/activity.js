// What people did and what happened, the newest first: a span of time is a link to what happened last night.

import { h } from "../dom.js";
import { when } from "../format.js";
import { column, DEPENDENCY, listView, named as choices, textColumn } from "../lists.js";
import { badge, bulkActionLink, causeLink, circuitLink, deadLetterLink, eventLink, operationLink, sagaLink, short } from "../pieces.js";
import { named } from "./alerts.js";
import { outageSpan } from "./circuits.js";

const KINDS = ["action", "bulk", "circuit", "deployment", "settings"];
const FILTERS = [
  { name: "q", label: "Search" },
  { name: "kind", label: "Kind", choices: choices(KINDS) },
  { name: "who", label: "Who" },
  { name: "dependency", label: "Dependency" },
  { name: "after", label: "After", instant: true },
  { name: "before", label: "Before", instant: true },
];
const COLUMNS = [
  { name: "When", cell: (one) => (one.kind === "circuit" ? outageSpan(one) : when(one.at)), text: (one) => one.at },
  column("kind", "Kind", (kind) => badge(kind)),
  column("who", "Who"),
  column("what", "What", undefined, "wide brief"),
  { name: "On", class: "wide", cell: targetLink, text: (one) => one.target.id },
  DEPENDENCY,
  textColumn("Reason", (one) => one.reason),
  { name: "Until", text: (one) => one.until },
];

function targetLink({ target: { type, id }, limit_key: key }) {
  switch (type) {
    case "operation": return operationLink(id, short(id));
    case "dead_letter": return deadLetterLink(id, short(id));
    case "event": return eventLink(id, short(id));
    case "circuit": return circuitLink(id, key);
    case "saga": return sagaLink(id, short(id));
    case "bulk_action": return bulkActionLink(id, short(id));
    case "cause": return causeLink(id, short(id));
    case "alert": return h("a", { href: "#/alerts" }, named(id));
    default: return "the app";
  }
}

export const activityView = (route) => listView(route, {
  title: "Activity", list: "activity", filters: FILTERS, columns: COLUMNS, seconds: 15, keyOf: (one) => `${one.at} ${one.target.id} ${one.what}`,
  nothing: "No entry matches.",
});
