// Editing what a dead letter sends before it is replayed, with what changed in view.

import { post } from "./api.js";
import { h, toast } from "./dom.js";
import { card, mono } from "./pieces.js";

/** Values that were changed, each with its place. */
export const changeList = (changes) => (changes.length ? h("ul", { class: "diff" }, changes.map(({ pointer, before, after }) => h("li", {}, pointer ? [mono(pointer), " "] : null,
  before === undefined ? null : h("del", {}, JSON.stringify(before)), " → ", after === undefined ? h("span", { class: "dim" }, "nothing") : h("ins", {}, JSON.stringify(after))))) : null);

/** Each value in a document that holds no further ones, as [place, value]. */
export function leaves(place, value) {
  if (value === null || typeof value !== "object" || !Object.keys(value).length) return [[place, value]];
  return Object.entries(value).flatMap(([name, part]) => leaves(`${place}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`, part));
}

/** The values that differ between two documents. */
function changesOf(place, before, after) {
  const [old, now] = [before, after].map((document) => new Map(leaves(place, document)));
  return [...new Set([...old.keys(), ...now.keys()])].map((pointer) => ({ pointer, before: old.get(pointer), after: now.get(pointer) }))
    .filter((change) => JSON.stringify(change.before) !== JSON.stringify(change.after));
}

/** The value of a JSON text; a text that is none is its own value. */
export function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** What of a dead letter can be edited: its name in the API and its value. */
export function contentOf(one) {
  if ("request" in one) return { name: "request", value: one.request };
  if ("handler" in one) return { name: "input", value: one.input };
  return { name: "message", value: one.message };
}

/** The editor; `done` is called after a replay was started. */
export function editor(one, place, { done }) {
  const { name, value } = contentOf(one);
  const before = name === "message" ? value : JSON.stringify(value, null, 2);
  const area = h("textarea", { id: "edit", rows: Math.min(24, before.split("\n").length + 2), spellcheck: "false", "aria-describedby": "edit-problem" });
  area.value = before;
  const sameKey = h("input", { id: "edit-key", type: "checkbox" });
  const note = h("input", { id: "edit-note", autocomplete: "off", maxlength: "4000" });
  const problem = h("p", { id: "edit-problem", class: "problem", role: "alert" });
  const changes = h("div", { role: "group", "aria-label": "Changes" });
  const submit = h("button", { type: "submit", class: "main" });
  const look = () => {
    const [, mistake] = parsed(name, area.value);
    problem.textContent = mistake ?? "";
    submit.disabled = mistake !== null;
    submit.textContent = area.value === before ? "Replay unedited" : "Replay edited";
    if (!mistake) changes.replaceChildren(changeList(changesOf(name === "message" ? "" : `/${name}`, valueOf(before), valueOf(area.value))) ?? "Nothing yet.");
  };
  area.addEventListener("input", look);
  look();
  const editsOf = () => {
    const [edited] = parsed(name, area.value);
    if (name === "request") keepEmptied(value, edited);
    return { [name]: edited, ...(sameKey.checked ? { downstream_key: "same" } : {}) };
  };
  const send = async (event) => {
    event.preventDefault();
    submit.disabled = true;
    const isEdited = area.value !== before;
    try {
      await post(`${place}/replay`, { ...(isEdited ? editsOf() : {}), ...(note.value ? { note: note.value } : {}) });
      toast(isEdited ? "Replaying it as edited." : "Replaying it as it was.");
      done();
    } catch (error) {
      problem.textContent = [error.message, ...error.lines].join("\n");
      submit.disabled = false;
    }
  };
  return card("Edit and replay", h("form", { class: "editor", data: { keep: "", key: "editor" }, on: { submit: send } },
    name === "message" ? null : h("div", { class: "field" },
      h("label", { for: "edit-key" }, sameKey, " Send the same key to the dependency"),
      h("p", { class: "dim" }, "Otherwise an edited request gets a new one: many dependencies refuse another request under a key that they have seen. If an earlier attempt took effect, a new key lets it take effect again.")),
    h("div", { class: "field" }, h("label", { for: "edit" }, { request: "Request (JSON)", input: "Input (JSON)", message: "Message" }[name]), area, problem),
    h("h3", {}, "What changes"), changes,
    h("div", { class: "field" }, h("label", { for: "edit-note" }, "Note (optional)"), note),
    h("div", { class: "actions" }, submit)), { key: "content-editor" });
}

/** The API keeps what is not mentioned, so what was taken away is sent as nothing. */
function keepEmptied(before, edited) {
  for (const part of ["query", "headers"]) if (before[part] && !(part in edited)) edited[part] = {};
}

function parsed(name, text) {
  if (name === "message") return [text, null];
  try {
    return [JSON.parse(text), null];
  } catch (error) {
    return [null, `Not JSON yet: ${error.message}`];
  }
}
