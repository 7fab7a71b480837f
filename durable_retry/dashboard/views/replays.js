// Replaying many dead letters: choose, count, start, watch, cancel.

import { get, post, remove, segment } from "../api.js";
import { h, toast } from "../dom.js";
import { ago, coarse, number, percent, plural, until, words } from "../format.js";
import { ask } from "../parts/dialog.js";
import { filters } from "../parts/list.js";
import { badge, button, card, deadLetterLink, facts, notice } from "../parts/pieces.js";
import { go, link } from "../route.js";
import { REPLAY_FILTERS } from "./dead_letters.js";

const ENDED = ["completed", "cancelled", "failed"];

export function newReplayView({ path, query }) {
  const { rate = "5", ...filter } = query;
  const wanted = Object.fromEntries(Object.entries(filter).filter(([name]) => REPLAY_FILTERS.some((one) => one.name === name)));
  return {
    title: "Replay many",
    seconds: 15,
    load: () => post("dead-letters/replays", { filter: wanted, dry_run: true }).catch((error) => {
      if (error.status === 0) throw error;
      return { error };
    }),
    render: (count) => [
      h("p", { class: "dim" }, "Every open dead letter that matches is replayed under its own key, no faster than the rate, and never through an open circuit."),
      filters(path, query, [...REPLAY_FILTERS, { name: "rate", label: "Per second (5)" }]),
      count.error ? notice(count.error) : dryRun(count.matched, wanted, Number(rate)),
    ],
  };
}

function dryRun(matched, filter, rate) {
  const start = async () => {
    const fields = [{ name: "note", label: "Note", optional: true, hint: "Kept with each replay." }];
    const given = await ask({ title: `Replay ${plural(matched, "dead letter")}?`, words: `At most ${rate} a second. It can be cancelled on the way.`, fields, action: `Replay ${number(matched)}` });
    if (!given) return;
    try {
      const { replay_id: id } = await post("dead-letters/replays", { filter, rate_per_second: rate, dry_run: false, ...(given.note ? { note: given.note } : {}) });
      go(`replays/${segment(id)}`);
    } catch (error) {
      toast([error.message, ...error.lines].join(" "), "bad");
    }
  };
  const told = matched ? `They would take about ${coarse(Math.max(1, matched / rate))}.` : "There is nothing to replay.";
  return card("Dry run", [h("p", { class: "lead", role: "status" }, h("strong", {}, plural(matched, "open dead letter")), " match. ", told),
    matched ? h("div", { class: "actions" }, button(`Replay ${number(matched)}…`, start, "main"), h("a", { class: "button quiet", href: link("dead-letters", { ...filter, status: "open" }) }, "Look at them")) : null]);
}

export function bulkReplayView({ parameters: [id], reload }) {
  const path = `dead-letters/replays/${segment(id)}`;
  return {
    title: "Bulk replay",
    seconds: 1,
    load: (signal) => get(path, {}, signal),
    render: (one) => [headline(one, path, reload), progress(one), failures(one), about(one)],
  };
}

function headline(one, path, reload) {
  const cancel = async () => {
    if (!(await ask({ title: "Cancel the bulk replay?", words: "What was replayed stays so; the rest stays open.", action: "Cancel it", kind: "danger" }))) return;
    try {
      await remove(path);
      toast("Cancelling.");
    } catch (error) {
      toast(error.message, "bad");
    }
    reload();
  };
  return h("div", { class: "headline", data: { key: "headline" } },
    h("div", { class: "headline-words" }, badge(one.status), one.waiting_until ? h("span", { class: "countdown" }, "the circuit is open, looking again ", until(one.waiting_until)) : null),
    ENDED.includes(one.status) ? null : h("div", { class: "actions" }, button("Cancel", cancel, "danger")));
}

function progress(one) {
  const done = one.matched - one.remaining;
  const ratio = one.matched ? Math.min(1, done / one.matched) : 1;
  return card("Progress", [
    h("p", { class: "lead" }, h("strong", {}, number(done)), ` of ${number(one.matched)} (${percent(ratio)})`),
    h("progress", { max: "1", value: String(ratio), "aria-label": "Progress of the bulk replay" }),
    facts([["Replayed", number(one.replayed)], ["Not open any more", number(one.skipped)], ["Could not be started", number(one.failed)], ["Remaining", number(one.remaining)]]),
  ]);
}

function failures(one) {
  if (!one.failures?.length) return null;
  return card("Could not be started", h("ul", { class: "lines" }, one.failures.map((failure) => h("li", {}, deadLetterLink(failure.id), h("span", { class: "dim" }, failure.detail)))));
}

function about(one) {
  const filter = Object.entries(one.filter).filter(([, value]) => value !== null && value !== "");
  return card("About", facts([
    ["Started", ago(one.created_at)], ["Rate", `${one.rate_per_second} a second`], ["Note", one.note],
    ...filter.map(([name, value]) => [words(name), value]),
  ]));
}
