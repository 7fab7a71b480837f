// One change to many dead letters before they are replayed: a JSON patch, put together place by place, and what it does.

import { go, h, readRoute, toast } from "../dom.js";
import { changeList, contentOf, leaves, valueOf } from "../editor.js";
import { number } from "../format.js";
import { button, card, deadLetterLink, fieldOf, json, lines, linesCard, mono, short } from "../pieces.js";

const KINDS = [["add", "Set a value"], ["remove", "Remove"], ["move", "Move from"]];

/** The patch of the address; `[]` where there is none, null where it is no list of changes. */
export function patchOf({ patch }) {
  if (!patch) return [];
  try {
    const read = JSON.parse(patch);
    return Array.isArray(read) ? read : null;
  } catch {
    return null;
  }
}

/** What stands in the form and was not added yet, as a step of a patch; `{wrong}` where it is none, null where it is empty. */
export function typedChange() {
  const { op, place, value } = Object.fromEntries(new FormData(document.querySelector(".change-form")));
  if (!place.trim() && !value.trim()) return null;
  if (!place.startsWith("/")) return { wrong: "Name the place to change, such as /request/json/amount, or empty the form." };
  if (op === "move" && !value.startsWith("/")) return { wrong: "Name the place to move from, such as /request/json/amuont." };
  return { op, path: place, ...{ add: { value: valueOf(value) }, remove: {}, move: { from: value } }[op] };
}

/** The card in which a change is put together; `sample` is one of the dead letters, null while there is none. */
export function changeCard(path, patch, sample) {
  const become = (changed) => go(path, { ...readRoute().query, patch: changed.length ? JSON.stringify(changed) : null });
  const add = (event) => {
    event.preventDefault();
    const change = typedChange();
    if (change.wrong) return toast(change.wrong, "bad");
    event.target.reset();
    become([...(patch ?? []), change]);
  };
  const line = (change, index) => h("li", { data: { key: String(index) } }, h("span", {}, words(change)), button("Undo", () => become(patch.filter((_, other) => other !== index)), "quiet"));
  return card("Change them first", [
    h("p", { class: "dim" }, "Optional: what you add here is changed in every one of them before it is replayed. Values shown as *** stay what they are."),
    lines(patch, line),
    h("form", { class: "change-form", data: { keep: "", key: "change-form" }, on: { submit: add } },
      fieldOf({ name: "op", label: "Change", value: "add", choices: KINDS }),
      fieldOf({ name: "place", label: "Place", hint: "Such as /request/json/amount" }),
      fieldOf({ name: "value", label: "Value, or where to move it from", optional: true, hint: "JSON, or plain text" }),
      h("button", { type: "submit" }, "Add the change")),
    sample ? fieldsOf(sample) : null,
  ], { key: "change" });
}

const MOST_FIELDS = 40;

/** The fields of one dead letter's content, to pick a place from. */
function fieldsOf(sample) {
  const { name, value } = contentOf(sample);
  const fields = leaves(`/${name}`, name === "message" ? valueOf(value) : value);
  const line = ([place, leaf]) => h("li", { data: { key: place } }, button(mono(place), () => pick(place, leaf), "quiet"), h("span", { class: "dim clip" }, JSON.stringify(leaf)));
  return h("details", { open: true, data: { key: "fields" } }, h("summary", {}, "Choose a field of the newest"),
    h("p", {}, deadLetterLink(sample.id, sample.key), fields.length > MOST_FIELDS ? ` The first ${MOST_FIELDS} of ${number(fields.length)} fields.` : null),
    h("ul", { class: "lines fields" }, fields.slice(0, MOST_FIELDS).map(line)));
}

/** Put a field into the form: what is moved is moved from there. */
function pick(place, leaf) {
  const { op, place: to, value } = document.querySelector(".change-form").elements;
  to.value = place;
  if (op.value === "move") value.value = place;
  else if (op.value === "add") value.value = JSON.stringify(leaf);
  to.focus();
}

/** A place without what every place begins with. */
const nameOf = (place) => place.replace(/^\/(request\/json|request|input|message)\/(?=.)/, "");

/** A step of a patch in a few words. */
export function changeWords({ op, path, from, value }) {
  if (op === "move" || op === "copy") return `${op} ${nameOf(from)} to ${nameOf(path)}`;
  if (op === "remove") return `remove ${nameOf(path)}`;
  return op === "test" ? `only where ${nameOf(path)} is ${JSON.stringify(value)}` : `set ${nameOf(path)} to ${JSON.stringify(value)}`;
}

function words({ op, path, from, value }) {
  if (op === "move" || op === "copy") return [op === "move" ? "Move " : "Copy ", mono(from), " to ", mono(path)];
  if (op === "remove") return ["Remove ", mono(path)];
  return [op === "test" ? "Only where " : "Set ", mono(path), op === "test" ? " is " : " to ", mono(JSON.stringify(value))];
}

/** What the replay does to the newest that match; nothing where it changes none and is not refused. */
export function previewCard(preview, patch) {
  if (!patch?.length && !preview?.some((one) => one.errors.length)) return null;
  const line = (one) => h("li", { class: "stack", data: { key: one.id } }, deadLetterLink(one.id, one.key ?? short(one.id)),
    one.errors.length ? h("ul", { class: "problem" }, one.errors.map((error) => h("li", {}, `Would not be replayed: ${error.pointer} ${error.detail}`))) : changeList(one.changes) ?? h("span", { class: "dim" }, "stays as it is"));
  return linesCard("What it does to the newest", preview, line, { nothing: "Nothing matches.", key: "preview" });
}

/** The patch of a bulk action that was started. */
export const patchCard = (patch) => (patch?.length ? card("Change", json(patch), { key: "patch" }) : null);
