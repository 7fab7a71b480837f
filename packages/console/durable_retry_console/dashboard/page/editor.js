// Editing what a dead letter sends before it is replayed, with what changed in view.

import { post } from "./api.js";
import { h, toast } from "./dom.js";
import { card } from "./pieces.js";

const MOST_CELLS = 4_000_000;

/** Lines as `[sign, text]`, sign being " ", "-" or "+": the longest common subsequence stays. */
export function diff(before, after) {
  const [a, b] = [before.split("\n"), after.split("\n")];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a.at(-1 - tail) === b.at(-1 - tail)) tail++;
  const kept = (lines) => lines.map((line) => [" ", line]);
  const middle = changed(a.slice(head, a.length - tail), b.slice(head, b.length - tail));
  return [...kept(a.slice(0, head)), ...middle, ...kept(a.slice(a.length - tail))];
}

function changed(a, b) {
  if (a.length * b.length > MOST_CELLS) return [...a.map((line) => ["-", line]), ...b.map((line) => ["+", line])];
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i * width + j] =
        a[i] === b[j]
          ? longest[(i + 1) * width + j + 1] + 1
          : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  return walk(a, b, longest, width);
}

function walk(a, b, longest, width) {
  const lines = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    const isSame = i < a.length && j < b.length && a[i] === b[j];
    const goes = j === b.length || (i < a.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1]);
    if (isSame) {
      lines.push([" ", a[i]]);
      i++;
      j++;
    } else if (goes) lines.push(["-", a[i++]]);
    else lines.push(["+", b[j++]]);
  }
  return lines;
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
  const changes = h("pre", { class: "diff", tabindex: "0", "aria-label": "Changes" });
  const submit = h("button", { type: "submit", class: "main" });
  const look = () => {
    const [, mistake] = parsed(name, area.value);
    problem.textContent = mistake ?? "";
    submit.disabled = mistake !== null;
    submit.textContent = area.value === before ? "Replay unedited" : "Replay edited";
    changes.replaceChildren(...lines(before, area.value));
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

function lines(before, after) {
  if (before === after) return ["Nothing yet."];
  const kinds = { "-": "gone", "+": "new", " ": "same" };
  return diff(before, after).map(([sign, text]) => h("span", { class: kinds[sign] }, `${sign} ${text}\n`));
}
