// What people did and what happened, the newest first: a span of time is a link to what happened last night.

import { h } from "../dom.js";
import { when, words } from "../format.js";
import { listView } from "../lists.js";
import { badge, circuitLink, deadLetterLink, eventLink, operationLink, sagaLink, short } from "../pieces.js";
import { named } from "./alerts.js";
import { causeLink } from "./causes.js";
import { outageSpan } from "./circuits.js";

const KINDS = ["action", "bulk", "circuit", "deployment", "settings"];
const FILTERS = [
  { name: "q", label: "Search" },
  { name: "kind", label: "Kind", choices: KINDS.map((kind) => [kind, words(kind)]) },
  { name: "who", label: "Who" },
  { name: "dependency", label: "Dependency" },
  { name: "after", label: "After", instant: true },
  { name: "before", label: "Before", instant: true },
];
const COLUMNS = [
  { name: "When", cell: (one) => (one.kind === "circuit" ? outageSpan(one) : when(one.at)), text: (one) => one.at },
  { name: "Kind", cell: (one) => badge(one.kind), text: (one) => one.kind },
  { name: "Who", cell: (one) => one.who ?? "–", text: (one) => one.who },
  { name: "What", class: "wide said", cell: (one) => one.what, text: (one) => one.what },
  { name: "On", class: "wide", cell: targetLink, text: (one) => one.target.id },
  { name: "Dependency", cell: (one) => (one.dependency ? circuitLink(one.dependency) : "–"), text: (one) => one.dependency },
  { name: "Reason", class: "wide", cell: (one) => h("span", { class: "clip", title: one.reason }, one.reason ?? "–"), text: (one) => one.reason },
];

const FILE = [...COLUMNS, { name: "Until", text: (one) => one.until }];

function targetLink({ target: { type, id } }) {
  switch (type) {
    case "operation": return operationLink(id, short(id));
    case "dead_letter": return deadLetterLink(id, short(id));
    case "event": return eventLink(id, short(id));
    case "circuit": return circuitLink(id);
    case "saga": return sagaLink(id, short(id));
    case "bulk_action": return h("a", { href: `#/bulk-actions/${encodeURIComponent(id)}` }, short(id));
    case "cause": return causeLink(id, short(id));
    case "alert": return h("a", { href: "#/alerts" }, named(id));
    default: return "the app";
  }
}

export const activityView = (route) => listView(route, {
  title: "Activity", list: "activity", filters: FILTERS, columns: COLUMNS, file: FILE, seconds: 15, keyOf: (one) => `${one.at} ${one.target.id} ${one.what}`,
  nothing: (page) => (page.next_cursor ? "No match so far; the next page looks further." : "Nothing happened that matches."),
});
