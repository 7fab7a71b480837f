// One dead letter: what it was to do, what went wrong, and what a person does about it.

import { get, post, segment } from "../api.js";
import { h, toast } from "../dom.js";
import { ago, at, words } from "../format.js";
import { ask } from "../parts/dialog.js";
import { contentOf, editor } from "../parts/editor.js";
import { badge, button, card, circuitLink, deadLetterLink, facts, json, mono, operationLink } from "../parts/pieces.js";
import { timeline } from "../parts/timeline.js";
import { link } from "../route.js";

export function deadLetterView({ parameters: [id], query, path, reload }) {
  const place = `dead-letters/${segment(id)}`;
  return {
    title: "Dead letter",
    load: (signal) => get(place, {}, signal),
    render: (one) => [
      headline(one, place, path, query, reload),
      h("p", { class: "detail", data: { key: "detail" } }, one.detail),
      query.edit && one.status === "open" ? editor(one, place, { done: reload }) : content(one),
      one.attempts.length ? card("Attempts", timeline({ ...one, operation_id: null })) : null,
      replays(one), notes(one, place, reload), about(one),
    ],
  };
}

/** Do something to the dead letter, and say how it went. */
async function act(place, what, body, done, reload) {
  try {
    await post(`${place}/${what}`, body);
    toast(done);
  } catch (error) {
    toast([error.message, ...error.lines].join(" "), "bad");
  }
  reload();
}

function headline(one, place, path, query, reload) {
  const replay = async () => {
    const given = await ask({
      title: "Replay as it was?", words: "Under the same key, so the dependency still deduplicates it.", action: "Replay",
      fields: [{ name: "note", label: "Note", optional: true, hint: "Kept with the replay." }],
    });
    if (given) act(place, "replay", given.note ? { note: given.note } : {}, "Replaying.", reload);
  };
  const isOpen = one.status === "open";
  return h("div", { class: "headline", data: { key: "headline" } },
    h("div", { class: "headline-words" }, badge(one.status), h("strong", {}, words(one.reason)), h("span", { class: "key" }, one.key)),
    h("div", { class: "actions" },
      isOpen ? button("Replay", replay, "main") : null,
      isOpen ? h("a", { class: "button", href: link(path, query.edit ? {} : { edit: "1" }) }, query.edit ? "Leave the editor" : "Edit and replay") : null,
      one.status === "archived"
        ? button("Restore", () => act(place, "restore", {}, "Restored.", reload))
        : button("Archive", () => act(place, "archive", {}, "Archived.", reload), "quiet")));
}

function content(one) {
  const { name, value } = contentOf(one);
  return card({ request: "Request", input: `Input of ${one.handler}`, message: "Message" }[name], json(value), { key: "content" });
}

function replays(one) {
  if (!one.replays.length) return null;
  const change = (edit) => h("li", {}, mono(edit.pointer), " ", h("del", {}, JSON.stringify(edit.before)), " → ", h("ins", {}, JSON.stringify(edit.after)));
  const line = (replay) => h("li", { class: "stack" },
    h("span", {}, operationLink(replay.operation_id, "Operation"), " ", ago(replay.requested_at), replay.note ? ` · ${replay.note}` : "",
      replay.replay_id ? [" · ", h("a", { href: link(`replays/${segment(replay.replay_id)}`) }, "bulk replay")] : null,
      replay.dead_letter_id && replay.dead_letter_id !== one.id ? [" · ", deadLetterLink(replay.dead_letter_id, "failed again")] : null),
    replay.changes.length ? h("ul", {}, replay.changes.map(change)) : null);
  return card("Replays", h("ul", { class: "lines" }, one.replays.map(line)));
}

function notes(one, place, reload) {
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
  const line = (note) => h("li", { class: "stack" }, h("span", {}, note.text), h("small", { class: "dim" }, ago(note.at)));
  return card("Notes", [one.notes.length ? h("ul", { class: "lines" }, one.notes.map(line)) : null, form]);
}

function about(one) {
  return card("About", facts([
    ["Dead letter", mono(one.id)],
    ["Operation", one.operation_id ? operationLink(one.operation_id) : null],
    ["Dependency", circuitLink(one.dependency)],
    ["Category", words(one.category)],
    ["Source", one.source],
    ["Group", h("a", { href: link("dead-letters", { group: one.group }) }, one.group)],
    ["Correlation", one.correlation_id],
    ["Replay of", one.replay_of ? deadLetterLink(one.replay_of) : null],
    ["First failed", h("span", {}, at(one.first_failed_at), " · ", ago(one.first_failed_at))],
    ["Created", h("span", {}, at(one.created_at), " · ", ago(one.created_at))],
    ["Archived", one.archived_at ? at(one.archived_at) : null],
  ]));
}
