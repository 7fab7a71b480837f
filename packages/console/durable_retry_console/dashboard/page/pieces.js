// Pieces that several views are made of: badges, cards, names that are cut, dialogs.

import { h, link, toast } from "./dom.js";
import { number, percent, said, saidText, words } from "./format.js";

/** The states of an operation in the order of its life. */
export const STATES = ["pending", "scheduled", "paused", "running", "waiting_retry", "waiting_throttle", "waiting_circuit", "waiting_order", "succeeded", "dead_lettered", "cancelled"];
export const WAITING = ["scheduled", "waiting_retry", "waiting_throttle", "waiting_circuit", "waiting_order"];
/** Those that a circuit or a pause holds. */
export const HELD = ["waiting_circuit", "waiting_throttle"];
export const FINISHED = ["succeeded", "dead_lettered", "cancelled"];

const UNTIL = { scheduled: "begins ", paused: "goes on ", waiting_circuit: "next probe " };
/** What an operation in a state does when its wait is over. */
export const untilWords = (status) => UNTIL[status] ?? "next attempt ";
/** Whether its policy holds an operation in place of a dead letter, which it is when that is over. */
export const isHeldByPolicy = ({ status, actions = [] }) => status === "paused" && actions.at(-1)?.action === "pause" && actions.at(-1).by === "the policy";
/** As `untilWords`, of the document of an operation. */
export function endWords(one) {
  if (isHeldByPolicy(one)) return "becomes a dead letter ";
  // Nothing is probed while everything is held.
  return WAITING.includes(one.status) && one.waits?.at(-1)?.kind === "freeze" ? "asks again " : untilWords(one.status);
}

/** Why an operation waits now, with the error behind it; null while it does not. */
export const whyWaiting = (one) => (WAITING.includes(one.status) ? one.waits?.at(-1)?.delay_reasons[0] : null) ?? null;

/** A state as a word with a mark: colour is never the only difference between states. */
export const badge = (state, text = words(state)) => h("span", { class: `badge is-${state}` }, text);

/** Why something cannot be shown. */
export function notice(error) {
  const isMissing = error.status === 404;
  return h("div", { class: `notice ${isMissing ? "calm" : "bad"}`, role: "status" },
    h("strong", {}, isMissing ? "Not found" : "Not available"), h("span", {}, ` ${error.message}`),
    error.lines?.length ? h("ul", {}, error.lines.map((line) => h("li", {}, line))) : null);
}

/** In place of a part of the overview that the API could not read. */
export const unreadPart = (failure) => ({ error: { status: 503, message: `The API could not read it (${failure}).` } });

/** Why what is stored of one cannot be read, above what is known of it all the same; nothing where it can. */
export function unread(one) {
  if (!one?.unreadable) return null;
  return h("div", { class: "notice bad", role: "status", data: { key: "unreadable" } },
    h("strong", {}, "Cannot be read"), h("span", {}, ` ${one.unreadable}. What is shown is all that is known.`));
}

/** The same in a row of a table. */
export const unreadMark = (one) => (one.unreadable ? h("span", { class: "badge is-failed", title: one.unreadable }, "Unreadable") : null);

/** In place of a part that was not read yet. */
export const loading = () => h("p", { class: "loading-part" }, "Loading…");

/** Words in place of what is not there. */
export const empty = (...words) => h("p", { class: "empty" }, words);

/** A text of any length in two lines of a table's cell; its title has all of it. */
export const clip = (text) => h("span", { class: "clip", title: saidText(text) }, text ? said(text) : "–");

/** A link that looks like a button. */
export const linkButton = (text, path, query = {}, kind = "") => h("a", { class: `button ${kind}`, href: link(path, query) }, text);

/** What a thing is and what one can do to it, at the head of its page. */
export function headline(content, actions = []) {
  const given = [actions].flat(Infinity).filter(Boolean);
  return h("div", { class: "headline", data: { key: "headline" } },
    h("div", { class: "headline-words" }, content), given.length ? h("div", { class: "actions" }, given) : null);
}

/** A line for each item; nothing without items. */
export const lines = (items, line) => (items?.length ? h("ul", { class: "lines" }, items.map(line)) : null);

/** A card with a line for each item; without items it says `nothing`, and is left out where there are no such words. */
export function linesCard(title, items, line, { nothing = null, ...options } = {}) {
  const content = lines(items, line) ?? (nothing && empty(nothing));
  return content && card(title, content, options);
}

/** The link to all of what a card shows a part of. */
export const all = (path, query = {}) => h("a", { href: link(path, query) }, "All");

/** A card with a heading; `more` stands at its right. */
export function card(title, content, { more = null, key = title, kind = "" } = {}) {
  return h("section", { class: `card ${kind}`, data: { key } }, h("header", {}, h("h2", {}, title), more), content);
}

/** Names and values as a description list; empty values are left out. */
export function facts(pairs) {
  const given = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, given.map(([name, value]) => h("div", { data: { key: name } }, h("dt", {}, name), h("dd", {}, value))));
}

/** A number with its name, as a link when it leads somewhere. */
export function figure(value, name, { href = null, kind = "", note = null } = {}) {
  const notes = [note].flat(Infinity).filter(Boolean);
  const content = [h("strong", {}, value), h("span", {}, name), notes.length ? h("small", {}, notes) : null];
  return href ? h("a", { class: `figure ${kind}`, href }, content) : h("div", { class: `figure ${kind}` }, content);
}

/** How much of it is done: in words and as a bar. */
export function progressBar(label, done, total, verb = "") {
  const ratio = total ? Math.min(1, done / total) : 1;
  return [h("p", { class: "lead" }, h("strong", {}, number(done)), ` of ${number(total)}${verb} (${percent(ratio)})`),
    h("progress", { max: "1", value: String(ratio), "aria-label": label })];
}

export const mono = (text) => h("code", {}, text);

/** A button that puts a text into the clipboard; where the browser refuses that, a toast shows it. */
export function copier(name, text) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied.");
    } catch {
      toast(text);
    }
  };
  return button(name, copy, "quiet");
}

export const json = (value) => h("pre", { tabindex: "0" }, typeof value === "string" ? value : JSON.stringify(value, null, 2));
export const button = (text, click, kind = "") => h("button", { type: "button", class: kind, on: { click } }, text);
// Keys often begin alike and end with what tells them apart, so that a long one is cut in the middle. The whole of it is
// in the page: the style sheet takes away what has no room, and `wholeNames` puts it into a copy.

const [LONG, TAIL] = [24, 10];

/** The children of an element of the class `cut`. */
function cut(text) {
  if (text.length <= LONG) return text;
  return [h("span", { class: "cut-head" }, text.slice(0, -TAIL)), h("span", {}, text.slice(-TAIL))];
}

/** A link whose text is cut where it has no room; its title has all of it, and what it leads to. */
export const cutLink = (href, text, title = text) => h("a", { class: "cut", href, title, "aria-label": text.length > LONG ? text : null }, cut(text));

/** Let a copy of a cut name be all of it, in one line. */
export function wholeNames(event) {
  const chosen = document.getSelection();
  const place = chosen.rangeCount ? chosen.getRangeAt(0).commonAncestorContainer : null;
  if (!(place?.nodeType === Node.TEXT_NODE ? place.parentElement : place)?.closest(".cut")) return;
  event.clipboardData.setData("text/plain", chosen.getRangeAt(0).toString());
  event.preventDefault();
}

const SHORT = 14;

/** An id cut for a table; its title has all of it. */
export const short = (id) => (id && id.length > SHORT + 1 ? `${id.slice(0, SHORT)}…` : id);
/** What the title of a link that may be cut says: all of its text, and where it leads. */
const whole = (id, text) => (text === id || id.startsWith(String(text).slice(0, SHORT)) ? id : `${text} (${id})`);
/** A link by a name, or by the id where nothing has a name: what cannot be read has none. */
const linkTo = (folder) => (id, text) => (id ? cutLink(link(`${folder}/${encodeURIComponent(id)}`), text || id, whole(id, text || id)) : h("span", {}, "–"));
export const operationLink = linkTo("operations");
export const deadLetterLink = linkTo("dead-letters");
export const eventLink = linkTo("outbox");
export const batchLink = linkTo("batches");
export const sagaLink = linkTo("sagas");
export const causeLink = linkTo("causes");
export const laneLink = linkTo("lanes");
export const bulkActionLink = linkTo("bulk-actions");
/** What operations share, such as a debounce key, which leads to all that have it. */
export const sharedLink = (name, value) => (value ? cutLink(link("operations", { [name]: value }), value) : h("span", { class: "dim" }, "–"));
export const correlationLink = (id) => sharedLink("correlation_id", id);
/** A link to the circuit of a dependency, or of one of its limit keys. */
export const circuitLink = (name, limitKey, text = name) => (name ? h("a", { href: link(`circuits/${encodeURIComponent(name)}`, { limit_key: limitKey }) }, text) : h("span", { class: "dim" }, "none"));

// Dialogs and fields. The browser keeps the focus inside a dialog and closes it with Escape.

/** Show something in a dialog that is only to be read. */
export function tell(title, content) {
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, h("form", { method: "dialog" },
    h("h2", { id: "dialog-title" }, title), content, h("div", { class: "actions" }, h("button", { type: "submit", class: "main" }, "Close"))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/**
 * Ask for values; null when the person thinks better of it, and without those that were left empty.
 * A field is {name, label, type: text|password|number|textarea, value, hint, optional, min, max, choices}.
 */
export function ask({ title, words = null, fields = [], action, kind = "" }) {
  return new Promise((resolve) => {
    const form = h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, title), words ? h("div", { class: "dim" }, words) : null,
      fields.map(fieldOf),
      h("div", { class: "actions" },
        h("button", { type: "button", class: "quiet", on: { click: () => dialog.close() } }, "Not now"),
        h("button", { type: "submit", class: kind || "main" }, action)));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    let given = null;
    form.addEventListener("submit", () => (given = typedIn(form, fields)));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(given);
    });
    document.body.append(dialog);
    dialog.showModal();
    form.querySelector("input, textarea")?.focus();
  });
}

/** What was filled in, as the API takes it. */
function typedIn(form, fields) {
  const typed = new FormData(form);
  const valueOf = ({ type, choices }, text) => (type === "number" ? Number(text) : choices && ["true", "false"].includes(text) ? text === "true" : text);
  return Object.fromEntries(fields.filter(({ name }) => typed.get(name)).map((field) => [field.name, valueOf(field, typed.get(field.name))]));
}

/** One labelled field. */
export function fieldOf({ name, label, type = "text", value = "", hint = null, optional = false, min, max, step, choices, on }) {
  const shared = { name, id: `field-${name}`, value, required: !optional, "aria-describedby": hint ? `hint-${name}` : null, on };
  let input;
  if (choices) input = h("select", shared, choices.map(([text, word]) => h("option", { value: text, selected: text === value }, word)));
  else if (type === "textarea") input = h("textarea", { ...shared, rows: 3 });
  else input = h("input", { ...shared, type, min, max, step, autocomplete: "off" });
  return h("div", { class: "field" }, h("label", { for: `field-${name}` }, label), input, hint ? h("small", { id: `hint-${name}` }, hint) : null);
}
