// What somebody asks about, among operations and dead letters, by one search.

import { get } from "../api.js";
import { h, link } from "../dom.js";
import { ago, until } from "../format.js";
import { badge, card, circuitLink, deadLetterLink, notice, operationLink, table } from "../pieces.js";
import { errorOf } from "./operations.js";

const SHOWN = 20;
const clip = (text) => h("span", { class: "clip", title: text }, text);

const OPERATIONS = [
  { name: "State", cell: (one) => badge(one.status) },
  { name: "Key", class: "wide", cell: (one) => operationLink(one.operation_id, one.key) },
  { name: "Dependency", cell: (one) => circuitLink(one.dependency) },
  { name: "Correlation", cell: (one) => one.correlation_id ?? "–" },
  { name: "Why", class: "wide", cell: whyCell, text: (one) => why(one) || one.next_attempt_at },
  { name: "Accepted", cell: (one) => ago(one.created_at) },
];
const DEAD_LETTERS = [
  { name: "Status", cell: (one) => badge(one.status) },
  { name: "Key", class: "wide", cell: (one) => deadLetterLink(one.id, one.key) },
  { name: "Dependency", cell: (one) => one.dependency ?? "–" },
  { name: "Why", class: "wide", cell: (one) => clip(one.detail) },
  { name: "Created", cell: (one) => ago(one.created_at) },
];

function why(one) {
  return one.dead_letter?.detail ?? errorOf(one);
}

function whyCell(one) {
  return h("div", {}, clip(why(one)), one.next_attempt_at ? h("small", { class: "countdown" }, "next attempt ", until(one.next_attempt_at)) : null);
}

export function findView({ query }) {
  const words = query.q ?? "";
  return {
    title: words ? `“${words}”` : "Find",
    seconds: 15,
    load: (signal) => (words ? load(words, signal) : null),
    render: (found) => (found ? [
      part("Operations", "operations", words, found.operations, OPERATIONS, (one) => one.operation_id),
      part("Dead letters", "dead-letters", words, found.letters, DEAD_LETTERS, (one) => one.id),
    ] : h("p", { class: "empty" }, "Type a key, a correlation id, an id or words of an error above.")),
  };
}

async function load(q, signal) {
  const page = (path) => get(path, { q, limit: SHOWN }, signal).catch((error) => ({ error }));
  const [operations, letters] = await Promise.all([page("operations"), page("dead-letters")]);
  if (operations.error && letters.error) throw operations.error;
  return { operations, letters };
}

function part(title, path, q, page, columns, keyOf) {
  if (page.error) return card(title, notice(page.error));
  const further = page.next_cursor ? h("a", { href: link(path, page.items.length ? { q } : { q, cursor: page.next_cursor }) }, page.items.length ? "All that match" : "Look further back") : null;
  const empty = page.next_cursor ? "No match among the newest." : "No match.";
  return card(title, table(title, columns, page.items, { keyOf, empty }), { more: further });
}
