// Lanes of order keys: where somebody waits for its turn, and one lane with who is in front and who waits.

import { get, segment } from "../api.js";
import { h, link } from "../dom.js";
import { ago, plural, when, words } from "../format.js";
import { column, counts, listView, pagedTable } from "../lists.js";
import { badge, card, deadLetterLink, facts, headline, laneLink, linkButton, operationLink, unread } from "../pieces.js";
import { archiveButton, replayButton } from "./dead_letters.js";

const stateOf = (lane) => (lane.blocked ? "blocked" : lane.front ? "running" : "empty");

const COLUMNS = [
  { name: "State", cell: (one) => badge(stateOf(one)), text: stateOf },
  column("order_key", "Order key", (key) => laneLink(key), "wide"),
  ...counts("waiting"),
  { name: "In front", cell: (one) => operationLink(one.front?.operation_id), text: (one) => one.front?.operation_id },
  { name: "Dead letter", cell: (one) => deadLetterLink(one.front?.dead_letter_id), text: (one) => one.front?.dead_letter_id },
  column("front_since", "In front since", ago),
];
const FILTERS = [
  { name: "blocked", label: "Blocked", choices: [["true", "By a dead letter"], ["false", "Not blocked"]] },
  { name: "order_key", label: "Order key" },
];

export const lanesView = (route) => listView(route, {
  title: "Lanes", list: "order-lanes", filters: FILTERS, columns: COLUMNS, keyOf: (one) => one.order_key, nothing: "No operation waits for its turn behind another one.",
});

const QUEUE = [
  ...counts("place"),
  column("operation_id", "Operation", (id) => operationLink(id), "wide"),
  column("accepted_at", "Accepted", ago),
];
// Only of those that keep their place behind another one.
const ENDED = column("dead_letter_id", "Dead letter", (id) => id && deadLetterLink(id));

export function laneView({ id: key, path, query, reload }) {
  return {
    title: key,
    load: (signal) => load(key, signal),
    render: (lane) => [unread(lane), head(lane, reload), front(lane), queue(lane, path, query)],
  };
}

/** The lane with the operation in front and the dead letter that blocks it; null for what is not known any more. */
async function load(key, signal) {
  // On Azure a path takes no key with a slash.
  const [lane] = (await get("order-lanes", { order_key: key }, signal)).items;
  const { operation_id: id, dead_letter_id: letter } = lane.front ?? {};
  const known = (given, place) => (given ? get(`${place}/${segment(given)}`, {}, signal).catch(missing) : null);
  const [operation, dead] = await Promise.all([known(id, "operations"), known(letter, "dead-letters")]);
  return { ...lane, operation, dead };
}

function missing(error) {
  if (error.status === 404) return null;
  throw error;
}

function head({ dead, ...lane }, reload) {
  const place = dead && `dead-letters/${segment(dead.id)}`;
  return headline(
    [badge(stateOf(lane)), h("span", {}, lane.waiting ? `${plural(lane.waiting, "operation waits", "operations wait")} behind the one in front` : "No operation waits."),
      h("a", { href: link("operations", { order_key: lane.order_key }) }, "All in this order")],
    dead?.status !== "open" || dead.unreadable ? [] : [replayButton(dead, place, reload), linkButton("Edit and replay", place, { edit: "1" }), archiveButton(place, reload)]);
}

function front({ front: one, front_since: since, blocked, operation, dead }) {
  if (!one) return null;
  const why = !blocked ? null : dead?.status === "replayed" ? "Its dead letter is being replayed." : "It ended as a dead letter. Those behind it go on when a replay of it has succeeded, or when it is archived.";
  return card("In front", [
    why ? h("p", { class: "detail" }, why) : null,
    dead?.detail ? h("p", { class: "detail" }, dead.detail) : null,
    facts([
      ["Operation", h("span", {}, operation ? [badge(operation.status), " "] : null, operationLink(one.operation_id, operation?.key))],
      ["Dead letter", one.dead_letter_id && deadLetterLink(one.dead_letter_id, dead && words(dead.reason))],
      ["Accepted", when(one.accepted_at)], ["In front since", when(since)],
    ]),
  ], { key: "front" });
}

function queue({ queue: places, waiting }, path, query) {
  const items = places.map((one, index) => ({ ...one, place: index + 1 }));
  const rest = waiting - items.length;
  const columns = items.some((one) => one.dead_letter_id) ? [...QUEUE, ENDED] : QUEUE;
  return card("Queue", [
    pagedTable("Queue", columns, { items }, { path, query, file: "lane", keyOf: (one) => one.operation_id, nothing: "No operation waits." }),
    rest > 0 ? h("p", { class: "dim" }, `${plural(rest, "more operation waits", "more operations wait")} behind them.`) : null,
  ], { key: "queue" });
}
