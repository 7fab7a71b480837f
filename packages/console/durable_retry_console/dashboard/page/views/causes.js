// One cause of dead letters: what failed alike, who looks into it, and what to do about all of it.

import { doing, notes } from "../acting.js";
import { get, segment } from "../api.js";
import { h, link } from "../dom.js";
import { contentOf } from "../editor.js";
import { ago, number, plural, said, saidText, when, whose, words } from "../format.js";
import { badge, card, circuitLink, deadLetterLink, facts, headline, json, linkButton, mono } from "../pieces.js";

/** Where people stand with a cause; nothing while nobody looked at it. */
const standing = ({ status, came_back: cameBack }) => [
  cameBack ? backMark() : null,
  status && status !== "new" ? badge(status) : null,
];

const backMark = () => h("span", { class: "badge is-failed" }, "Came back");

// What a person may have to act on: one row for many, with what to do about all of them.

export function manyRow(key, { count, isComplete = true, kind, href, name, of, mark = null, note, keys = null, ages, act: what }) {
  return h("li", { data: { key } }, h("strong", { class: `count ${kind}` }, isComplete ? null : h("small", {}, "at least "), number(count)),
    h("div", { class: "cause-words" }, h("span", { class: "headline-words" }, h("span", {}, h("a", { href }, name), " ", h("span", { class: "dim" }, of)), mark), h("small", { class: "cause-note" }, note), keys ? h("small", {}, h("strong", {}, whose(keys, count))) : null, h("small", { class: "dim" }, ages)), what);
}

/** A row for each cause. */
export const causeRows = (groups) => h("ul", { class: "causes" }, groups.map((one) => manyRow(one.group, {
  count: one.count, kind: "is-dead_lettered", href: link(`causes/${encodeURIComponent(one.group)}`), mark: standing(one), name: words(one.sample.reason), of: one.sample.dependency ?? "no dependency",
  note: h("span", { title: saidText(one.sample.detail) }, said(one.sample.detail)), keys: one.limit_keys, ages: ["first ", ago(one.first_seen_at), ", last ", ago(one.last_seen_at)],
  act: h("div", { class: "actions" }, linkButton("Replay…", "bulk-actions/new", { group: one.group }), linkButton("Archive…", "bulk-actions/new", { action: "archive", group: one.group }, "quiet")),
})));

export const othersWords = (count) => `and ${plural(count, "more cause")}, `;

export function causeView({ id: group, reload }) {
  const place = `dead-letters/groups/${segment(group)}`;
  return {
    title: "Cause",
    load: (signal) => get(place, {}, signal),
    render: (one) => [head(one, place, reload), h("p", { class: "detail", data: { key: "detail" } }, said(one.sample.detail)), remedies(one), failure(one.latest), content(one.latest), notes(one, place, reload), about(one)],
  };
}

const NOTE = { name: "note", label: "Note", optional: true, hint: "Kept with the cause." };
const ACKNOWLEDGE = { what: "acknowledge", label: "Acknowledge…", action: "Acknowledge", done: "Acknowledged.", title: "Acknowledge this cause?", words: "It shows that somebody works on it.", fields: [NOTE] };
const RESOLVE = { what: "resolve", label: "Resolve…", action: "Resolve", done: "Resolved.", title: "Resolve this cause?", fields: [NOTE],
  words: "It shows that the cause is fixed. Its open dead letters stay open: replay or archive them. If it fails again, it is marked Came back." };

const head = (one, place, reload) => headline(
  [badge(one.status), one.came_back ? backMark() : null, h("strong", {}, words(one.sample.reason)), circuitLink(one.sample.dependency)],
  [one.status === "new" ? doing(place, reload, ACKNOWLEDGE) : null, one.status === "resolved" ? null : doing(place, reload, RESOLVE)]);

function remedies({ group, count, limit_keys: keys, first_seen_at: first, last_seen_at: last }) {
  const to = (query, text) => linkButton(text, "bulk-actions/new", { ...query, group });
  return card(plural(count, "open dead letter"), [h("p", {}, "The first was made ", ago(first), ", the latest ", ago(last), ".", keys ? [" They are ", h("strong", {}, whose(keys, count)), "."] : null),
    count ? h("div", { class: "actions" }, to({}, "Replay or change them…"), to({ action: "archive" }, "Archive them…"), linkButton("Look at them", "dead-letters", { status: "open", group }, "quiet")) : null], { key: "remedies" });
}

/** More of the last failure than its line: the step, the answer's body, where the handler failed. */
export function failure(one) {
  if (!one?.failure) return null;
  const { step, body, traceback } = one.failure;
  return card("Failure", [step ? h("p", {}, "In the step ", mono(step), ".") : null, body ? [h("h3", {}, "Body of the answer"), json(body)] : null, traceback ? [h("h3", {}, "Where the handler failed"), json(traceback)] : null], { key: "failure" });
}

function content(latest) {
  if (!latest) return null;
  const { value } = contentOf(latest);
  return card("The latest", [h("p", {}, deadLetterLink(latest.id, latest.key ?? latest.id), " ", h("span", { class: "dim" }, ago(latest.created_at))), value === undefined ? null : json(value)], { key: "latest" });
}

function about(one) {
  return card("About", facts([
    ["Group", mono(one.group)], ["Category", words(one.sample.category)], ["Open", number(one.count)],
    ["Acknowledged", one.acknowledged_at ? [when(one.acknowledged_at), one.acknowledged_by ? ` by ${one.acknowledged_by}` : ""] : null],
    ["Resolved", one.resolved_at ? [when(one.resolved_at), one.resolved_by ? ` by ${one.resolved_by}` : ""] : null],
  ]));
}
