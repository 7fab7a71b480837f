// Editing what a dead letter sends before it is replayed, with what changed in view.

import { post } from "../api.js";
import { diff } from "../diff.js";
import { h, toast } from "../dom.js";
import { go } from "../route.js";
import { card } from "./pieces.js";

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
  const note = h("input", { id: "edit-note", autocomplete: "off", maxlength: "4000" });
  const problem = h("p", { id: "edit-problem", class: "problem", role: "alert" });
  const changes = h("pre", { class: "diff", tabindex: "0", "aria-label": "Changes" });
  const submit = h("button", { type: "submit", class: "main" }, "Replay edited");
  const look = () => {
    const [, mistake] = parsed(name, area.value);
    problem.textContent = mistake ?? "";
    submit.disabled = mistake !== null || area.value === before;
    changes.replaceChildren(...lines(before, area.value));
  };
  area.addEventListener("input", look);
  look();
  const send = async (event) => {
    event.preventDefault();
    submit.disabled = true;
    const [edited] = parsed(name, area.value);
    if (name === "request") keepEmptied(value, edited);
    try {
      const answer = await post(`${place}/replay`, { [name]: edited, ...(note.value ? { note: note.value } : {}) });
      toast("Replaying the edited request.");
      done();
      go(`operations/${encodeURIComponent(answer.operation_id)}`);
    } catch (error) {
      problem.textContent = [error.message, ...error.lines].join("\n");
      submit.disabled = false;
    }
  };
  return card("Edit and replay", h("form", { class: "editor", data: { keep: "", key: "editor" }, on: { submit: send } },
    h("p", { class: "dim" }, "The key stays the same, so the dependency still deduplicates it."),
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

function lines(before, after) {
  if (before === after) return ["Nothing yet."];
  const kinds = { "-": "gone", "+": "new", " ": "same" };
  return diff(before, after).map(([sign, text]) => h("span", { class: kinds[sign] }, `${sign} ${text}\n`));
}
