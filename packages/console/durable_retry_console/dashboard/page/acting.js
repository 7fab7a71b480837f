// What people do to one thing, and what they note beside it.

import { post } from "./api.js";
import { h, toast } from "./dom.js";
import { ago } from "./format.js";
import { card } from "./pieces.js";

/** Do something to what is at a place of the API, and say how it went. */
export async function act(place, what, body, done, reload) {
  try {
    await post(`${place}/${what}`, body);
    toast(done);
  } catch (error) {
    toast([error.message, ...error.lines].join(" "), "bad");
  }
  reload();
}

/** The notes of what is at a place of the API, and a field for another one. */
export function notes(one, place, reload) {
  const add = (event) => {
    event.preventDefault();
    const field = event.target.elements.text;
    const text = field.value.trim();
    if (!text) return;
    field.value = "";
    act(place, "notes", { text }, "Noted.", reload);
  };
  const form = h("form", { class: "note-form", data: { keep: "", key: "note-form" }, on: { submit: add } },
    h("label", { class: "sr", for: "note-text" }, "New note"), h("input", { id: "note-text", name: "text", placeholder: "Add a note", maxlength: "4000", autocomplete: "off" }),
    h("button", { type: "submit" }, "Add"));
  const line = (note) => h("li", { class: "stack" }, h("span", {}, note.text), h("small", { class: "dim" }, ago(note.at), note.by ? ` by ${note.by}` : ""));
  return card("Notes", [one.notes.length ? h("ul", { class: "lines" }, one.notes.map(line)) : null, form]);
}
