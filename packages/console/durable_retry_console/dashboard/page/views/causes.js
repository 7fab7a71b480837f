// One cause of dead letters: what failed alike, who looks into it, and what to do about all of it.

import { act, notes } from "../acting.js";
import { get, segment } from "../api.js";
import { h, link } from "../dom.js";
import { ago, number, plural, when, words } from "../format.js";
import { ask, badge, button, card, circuitLink, deadLetterLink, facts, json, mono } from "../pieces.js";

/** A cause as a link, by its reason. */
export const causeLink = (group, text) => h("a", { href: link(`causes/${encodeURIComponent(group)}`), title: group }, text);

/** Where people stand with a cause; nothing while nobody looked at it. */
export const standing = ({ status, came_back: cameBack }) => [
  cameBack ? backMark() : null,
  status && status !== "new" ? badge(status) : null,
];

const backMark = () => h("span", { class: "badge is-failed" }, "Came back");

// What a person may have to act on: one row for many, with what to do about all of them.

export function manyRow(key, { count, kind, href, name, of, mark = null, note, ages, act: what }) {
  return h("li", { data: { key } }, h("strong", { class: `count ${kind}` }, number(count)),
    h("div", { class: "cause-words" }, h("span", { class: "headline-words" }, h("span", {}, h("a", { href }, name), " ", h("span", { class: "dim" }, of)), mark), h("small", { class: "cause-note" }, note), h("small", { class: "dim" }, ages)), what);
}

/** A row for each cause. */
export const causeRows = (groups) => h("ul", { class: "causes" }, groups.map((one) => manyRow(one.group, {
  count: one.count, kind: "is-dead_lettered", href: link(`causes/${encodeURIComponent(one.group)}`), mark: standing(one), name: words(one.sample.reason), of: one.sample.dependency ?? "no dependency",
  note: h("span", { title: one.sample.detail }, one.sample.detail), ages: ["first ", ago(one.first_seen_at), ", last ", ago(one.last_seen_at)],
  act: h("div", { class: "actions" }, h("a", { class: "button", href: link("bulk-actions/new", { group: one.group }) }, "Replay…"), h("a", { class: "button quiet", href: link("bulk-actions/new", { action: "archive", group: one.group }) }, "Archive…")),
})));

export const othersWords = (count) => `and ${plural(count, "more cause")}, `;

export function causeView({ parameters: [group], reload }) {
  const place = `dead-letters/groups/${segment(group)}`;
  return {
    title: "Cause",
    load: (signal) => get(place, {}, signal),
    render: (one) => [headline(one, place, reload), h("p", { class: "detail", data: { key: "detail" } }, one.sample.detail), remedies(one), failure(one.latest), content(one.latest), notes(one, place, reload), about(one)],
  };
}

function headline(one, place, reload) {
  const noted = { name: "note", label: "Note", optional: true, hint: "Kept with the cause." };
  const body = (given) => (given.note ? { note: given.note } : {});
  const acknowledge = async () => {
    const given = await ask({ title: "Acknowledge this cause?", words: "It shows that somebody works on it.", fields: [noted], action: "Acknowledge" });
    if (given) act(place, "acknowledge", body(given), "Acknowledged.", reload);
  };
  const resolve = async () => {
    const given = await ask({ title: "Resolve this cause?", words: "It shows that the cause is fixed. Its open dead letters stay open: replay or archive them. If it fails again, it is marked Came back.", fields: [noted], action: "Resolve" });
    if (given) act(place, "resolve", body(given), "Resolved.", reload);
  };
  return h("div", { class: "headline", data: { key: "headline" } },
    h("div", { class: "headline-words" }, badge(one.status), one.came_back ? backMark() : null, h("strong", {}, words(one.sample.reason)), circuitLink(one.sample.dependency)),
    h("div", { class: "actions" },
      one.status === "new" ? button("Acknowledge…", acknowledge) : null, one.status === "resolved" ? null : button("Resolve…", resolve)));
}

function remedies({ group, count, first_seen_at: first, last_seen_at: last }) {
  const to = (query, text) => h("a", { class: "button", href: link("bulk-actions/new", { ...query, group }) }, text);
  return card(plural(count, "open dead letter"), [h("p", {}, "The first was made ", ago(first), ", the latest ", ago(last), "."),
    count ? h("div", { class: "actions" }, to({}, "Replay or change them…"), to({ action: "archive" }, "Archive them…"), h("a", { class: "button quiet", href: link("dead-letters", { status: "open", group }) }, "Look at them")) : null], { key: "remedies" });
}

/** More of the last failure than its line: the step, the answer's body, where the handler failed. */
export function failure(one) {
  if (!one?.failure) return null;
  const { step, body, traceback } = one.failure;
  return card("Failure", [step ? h("p", {}, "In the step ", mono(step), ".") : null, body ? [h("h3", {}, "Body of the answer"), json(body)] : null, traceback ? [h("h3", {}, "Where the handler failed"), json(traceback)] : null], { key: "failure" });
}

function content(latest) {
  if (!latest) return null;
  const shown = latest.request ?? latest.input ?? latest.message;
  return card("The latest", [h("p", {}, deadLetterLink(latest.id, latest.key ?? latest.id), " ", h("span", { class: "dim" }, ago(latest.created_at))), shown === undefined ? null : json(shown)], { key: "latest" });
}

function about(one) {
  return card("About", facts([
    ["Group", mono(one.group)], ["Category", words(one.sample.category)], ["Open", number(one.count)],
    ["Acknowledged", one.acknowledged_at ? [when(one.acknowledged_at), one.acknowledged_by ? ` by ${one.acknowledged_by}` : ""] : null],
    ["Resolved", one.resolved_at ? [when(one.resolved_at), one.resolved_by ? ` by ${one.resolved_by}` : ""] : null],
  ]));
}
