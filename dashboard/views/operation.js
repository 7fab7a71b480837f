// One operation: where it stands, what it went through and why, and the two things one can do.

import { get, post, segment } from "../api.js";
import { h, toast } from "../dom.js";
import { ago, at, number, until, words } from "../format.js";
import { ask } from "../parts/dialog.js";
import { badge, button, card, circuitLink, deadLetterLink, facts, FINISHED, json, mono, WAITING } from "../parts/pieces.js";
import { timeline } from "../parts/timeline.js";
import { link } from "../route.js";

export function operationView({ parameters: [id], reload }) {
  const path = `operations/${segment(id)}`;
  return {
    title: "Operation",
    seconds: 2,
    load: (signal) => get(path, {}, signal),
    render: (one) => [headline(one, path, reload), dead(one), card("Timeline", timeline(one)), result(one), events(one), about(one)],
  };
}

function headline(one, path, reload) {
  const act = async (what, done) => {
    try {
      await post(`${path}/${what}`);
      toast(done);
    } catch (error) {
      toast(error.message, "bad");
    }
    reload();
  };
  const cancel = async () => {
    const words = "An attempt that is under way ends first and may still succeed. What was done downstream is not undone.";
    if (await ask({ title: "Cancel this operation?", words, action: "Cancel it", kind: "danger" })) act("cancel", "Cancelling.");
  };
  return h("div", { class: "headline", data: { key: "headline" } },
    h("div", { class: "headline-words" }, badge(one.status), h("strong", { class: "key" }, one.key),
      one.next_attempt_at ? h("span", { class: "countdown" }, "next attempt ", until(one.next_attempt_at)) : null),
    h("div", { class: "actions" },
      WAITING.includes(one.status) ? button("Retry now", () => act("retry-now", "The wait is ended."), "main") : null,
      FINISHED.includes(one.status) ? null : button("Cancel", cancel, "danger")));
}

function dead(one) {
  if (!one.dead_letter) return null;
  return h("div", { class: "notice bad", data: { key: "dead" } }, h("strong", {}, words(one.dead_letter.reason)), " ",
    deadLetterLink(one.dead_letter.id, "Look at the dead letter"));
}

function result(one) {
  return one.result === null || one.result === undefined ? null : card("Result", json(one.result));
}

function events(one) {
  if (!one.events?.length) return null;
  const line = (event) => h("li", {}, badge(event.state), h("span", {}, event.type), mono(event.event_id));
  return card("Follow-up events", h("ul", { class: "lines" }, one.events.map(line)), { more: h("a", { href: link("outbox") }, "Outbox") });
}

function about(one) {
  return card("About", facts([
    ["Operation", mono(one.operation_id)],
    ["Dependency", circuitLink(one.dependency)],
    ["Source", one.source],
    ["Correlation", one.correlation_id],
    ["Attempts", number(one.attempt_count)],
    ["Accepted", h("span", {}, at(one.created_at), " · ", ago(one.created_at))],
    ["Changed", h("span", {}, at(one.updated_at), " · ", ago(one.updated_at))],
    ["Deadline", one.deadline_at ? h("span", {}, at(one.deadline_at), FINISHED.includes(one.status) ? "" : " · ", FINISHED.includes(one.status) ? "" : until(one.deadline_at)) : "none"],
  ]));
}
