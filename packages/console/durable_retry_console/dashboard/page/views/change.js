// One change to many dead letters before they are replayed: a JSON patch, put together place by place, and what it does.

import { go, h, readRoute, toast } from "../dom.js";
import { button, card, deadLetterLink, fieldOf, json, mono, short } from "../pieces.js";

const KINDS = [["add", "Set a value"], ["remove", "Take away"], ["move", "Move from"]];

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

/** The card in which a change is put together. */
export function changeCard(path, patch) {
  const become = (changed) => go(path, { ...readRoute().query, patch: changed.length ? JSON.stringify(changed) : null });
  const add = (event) => {
    event.preventDefault();
    const { op, place, value } = Object.fromEntries(new FormData(event.target));
    if (op === "move" && !value.startsWith("/")) return toast("Say where from: a place such as /request/json/amuont.", "bad");
    const more = { add: { value: valueOf(value) }, remove: {}, move: { from: value } }[op];
    event.target.reset();
    become([...(patch ?? []), { op, path: place, ...more }]);
  };
  const line = (change, index) => h("li", { data: { key: String(index) } }, h("span", {}, words(change)), button("Take it out", () => become(patch.filter((_, other) => other !== index)), "quiet"));
  return card("Change them first", [
    h("p", { class: "dim" }, "One change to all of them, without which each is replayed as it was. What you see masked stays what it was."),
    patch?.length ? h("ul", { class: "lines" }, patch.map(line)) : null,
    h("form", { class: "change-form", data: { keep: "", key: "change-form" }, on: { submit: add } },
      fieldOf({ name: "op", label: "Change", value: "add", choices: KINDS }),
      fieldOf({ name: "place", label: "Place", hint: "Such as /request/json/amount" }),
      fieldOf({ name: "value", label: "Value, or where from", optional: true, hint: "JSON, or else a text" }),
      h("button", { type: "submit" }, "Add the change")),
  ], { key: "change" });
}

function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function words({ op, path, from, value }) {
  if (op === "move" || op === "copy") return [op === "move" ? "Move " : "Copy ", mono(from), " to ", mono(path)];
  if (op === "remove") return ["Take away ", mono(path)];
  return [op === "test" ? "Only where " : "Set ", mono(path), op === "test" ? " is " : " to ", mono(JSON.stringify(value))];
}

/** What the replay does to the newest that match; nothing where it changes none and is not refused. */
export function previewCard(preview, patch) {
  if (!patch?.length && !preview?.some((one) => one.errors.length)) return null;
  const change = (one) => h("li", {}, mono(one.pointer), " ", one.before === undefined ? null : h("del", {}, JSON.stringify(one.before)), " → ", one.after === undefined ? h("span", { class: "dim" }, "nothing") : h("ins", {}, JSON.stringify(one.after)));
  const line = (one) => h("li", { class: "stack", data: { key: one.id } }, deadLetterLink(one.id, short(one.id)),
    one.errors.length ? h("ul", { class: "problem" }, one.errors.map((error) => h("li", {}, `Would not be replayed: ${error.pointer} ${error.detail}`))) : one.changes.length ? h("ul", {}, one.changes.map(change)) : h("span", { class: "dim" }, "stays as it is"));
  return card("What it does to the newest", preview.length ? h("ul", { class: "lines" }, preview.map(line)) : h("p", { class: "empty" }, "Nothing matches."), { key: "preview" });
}

/** The patch of a bulk action that was started. */
export const patchCard = (patch) => (patch?.length ? card("Change", json(patch), { key: "patch" }) : null);
