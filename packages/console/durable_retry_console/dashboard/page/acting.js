// What people do to one thing, and what they note beside it.

import { post } from "./api.js";
import { h, toast } from "./dom.js";
import { ago } from "./format.js";
import { ask, button, card, lines } from "./pieces.js";

/** Do what somebody asked for, and say how it went; `wordsOf` the answer may be null. Undefined where it failed. */
export async function attempt(task, wordsOf) {
  try {
    const answer = await task();
    const words = wordsOf(answer);
    if (words) toast(words);
    return answer;
  } catch (error) {
    toast([error.message, ...(error.lines ?? [])].join(" "), "bad");
    return undefined;
  }
}

/**
 * A button that does something to what is at a place of the API, after a question where it has a title.
 *
 * `what` is the end of the path, `done` what is said after it, or makes that of the API's answer. All else is the
 * question that `ask` takes; `bodyOf` makes the body of its answers where they are not the body.
 */
export function doing(place, reload, { what, label, done, kind = "", bodyOf = (given) => given, ...question }) {
  const click = async () => {
    const given = question.title ? await ask({ action: label, ...question, kind: kind === "danger" ? kind : "main" }) : {};
    if (!given) return;
    await attempt(() => post(`${place}/${what}`, bodyOf(given)), (answer) => (typeof done === "string" ? done : done(answer)));
    reload();
  };
  return button(label, click, kind);
}

/** The notes of what is at a place of the API, and a field for another one. */
export function notes(one, place, reload) {
  const add = async (event) => {
    event.preventDefault();
    const field = event.target.elements.text;
    const text = field.value.trim();
    if (!text) return;
    field.value = "";
    await attempt(() => post(`${place}/notes`, { text }), () => "Noted.");
    reload();
  };
  const form = h("form", { class: "note-form", data: { keep: "", key: "note-form" }, on: { submit: add } },
    h("label", { class: "sr", for: "note-text" }, "New note"), h("input", { id: "note-text", name: "text", placeholder: "Add a note", maxlength: "4000", autocomplete: "off" }),
    h("button", { type: "submit" }, "Add"));
  const line = (note) => h("li", { class: "stack" }, h("span", {}, note.text), h("small", { class: "dim" }, ago(note.at), note.by ? ` by ${note.by}` : ""));
  return card("Notes", [lines(one.notes, line), form]);
}
