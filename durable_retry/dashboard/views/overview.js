// The overview: what runs, what waits, which dependency is unhealthy, what needs a person.

import { get } from "../api.js";
import { stateBars } from "../charts.js";
import { go, h, link } from "../dom.js";
import { ago, coarse, now, number, plural, until, words } from "../format.js";
import { badge, card, deadLetterLink, figure, notice, operationLink, STATES } from "../pieces.js";
import { atLeast, COUNT_SECONDS, countedOperations, Paced, waitingIn, WINDOWS } from "../poll.js";
import { circuitCard, circuitsWithSettings } from "./circuits.js";

const SHOWN = 8;
/** Stands for an answer that is still to come. */
const LOADING = { error: { status: 404, message: "", isLoading: true } };

export function overviewView({ query }) {
  const minutes = WINDOWS.find(([value]) => value === Number(query.minutes))?.[0] ?? WINDOWS[0][0];
  const counted = new Paced((signal) => countedOperations(minutes, signal), COUNT_SECONDS);
  const parts = {};
  return {
    title: "Overview",
    hideTitle: true,
    load: (signal, update) => loadAll(parts, counted, signal, update),
    render: (data) => [figures(data), operations(data, minutes), dependencies(data), h("div", { class: "pair" }, groups(data), outbox(data)), lately(data)],
  };
}

/** Each part answers or fails for itself, and shows when it is there; only when nobody answers at all does the whole fail. */
async function loadAll(parts, counted, signal, update) {
  const data = () => ({ ...parts, counted: counted.value ?? LOADING });
  const asked = {
    circuits: circuitsWithSettings(signal),
    groups: get("dead-letters/groups", { limit: SHOWN }, signal),
    summary: get("dead-letters/summary", {}, signal),
    letters: get("dead-letters", { status: "open", limit: SHOWN }, signal),
    outbox: get("outbox", { state: "pending", limit: 200 }, signal),
    failed: get("outbox", { state: "failed", limit: 50 }, signal),
    health: get("health", {}, signal),
  };
  for (const name of Object.keys(asked)) parts[name] ??= LOADING;
  counted.ask(signal, () => update(data()));
  const answers = await Promise.all(Object.entries(asked).map(async ([name, answer]) => {
    const value = await answer.catch((error) => ({ error }));
    if (value.error?.status !== 0 || parts[name] === LOADING) parts[name] = value;
    update(data());
    return value;
  }));
  if (answers.every((answer) => answer.error?.status === 0)) throw answers[0].error;
  return data();
}

function figures({ counted, circuits, summary, outbox, failed, health }) {
  const ailing = circuits.error ? null : circuits.filter((one) => ["open", "half_open", "forced_open"].includes(one.state)).length;
  const sick = health.error ? [] : Object.entries(health.parts ?? {}).filter(([, part]) => !part.healthy).map(([name]) => words(name).toLowerCase());
  const lag = oldest(outbox);
  return h("div", { class: "figures", data: { key: "figures" } },
    figure(present(counted, ({ running }) => running), "under way", { href: link("operations", { status: "running" }), kind: "is-running", note: pendingNote(counted) }),
    figure(present(counted, waitingIn), "waiting", { href: link("operations", { status: waitingMost(counted) }), kind: waitingIn(counted.unfinished?.by_status) ? "is-waiting_retry" : "", note: heldNote(counted) }),
    figure(ailing === null ? "–" : number(ailing), ailing === 1 ? "circuit not closed" : "circuits not closed", { href: link("circuits"), kind: ailing ? "is-open" : "" }),
    figure(summary.error ? "–" : number(summary.open), "open dead letters",
      { href: link("dead-letters", { status: "open" }), kind: summary.open ? "is-dead_lettered" : "", note: summary.oldest_at ? ["oldest ", ago(summary.oldest_at)] : null }),
    figure(outbox.error ? "–" : lag ? coarse(lag.seconds) : "0 s", "outbox lag",
      { href: link("outbox", failed.items?.length ? { state: "failed" } : {}), note: failed.items?.length ? h("span", { class: "alarm" }, atLeast(number(failed.items.length), !failed.next_cursor), " failed") : null }),
    sick.length ? figure("Unhealthy", sick.join(", "), { kind: "is-dead_lettered" }) : null);
}

/** A count of what has not ended; a dash while it is not known. */
function present({ unfinished }, count) {
  return unfinished ? atLeast(number(count(unfinished.by_status)), unfinished.complete) : "–";
}

const pendingNote = ({ unfinished }) => (unfinished?.by_status.pending ? `${number(unfinished.by_status.pending)} not started yet` : null);
const heldNote = ({ unfinished }) => (unfinished?.by_status.waiting_circuit ? `${number(unfinished.by_status.waiting_circuit)} for a circuit` : null);

/** The waiting state that has the most: where a click on the sum leads. */
function waitingMost({ unfinished }) {
  const counts = unfinished?.by_status;
  return counts && counts.waiting_circuit > counts.waiting_retry ? "waiting_circuit" : "waiting_retry";
}

function operations({ counted }, minutes) {
  const choice = h("label", { class: "choice" }, h("span", { class: "sr" }, "Time shown"),
    h("select", { on: { change: (event) => go("", { minutes: event.target.value }) } },
      WINDOWS.map(([value, text]) => h("option", { value: String(value), selected: value === minutes }, text))));
  if (counted.error) return card("Operations", notice(counted.error), { more: choice });
  const by = counted.by_status;
  const legend = h("ul", { class: "legend" }, STATES.filter((state) => by[state]).map((state) =>
    h("li", { data: { key: state } }, h("a", { href: link("operations", { status: state, created_after: counted.from }) }, badge(state), h("strong", {}, number(by[state]))))));
  return card("Operations", [h("p", { class: "dim" }, `${countedWords(counted, minutes)} Each bar is a time of acceptance, its colours the present states. ${ratioWords(counted)}`),
    stateBars(counted), legend], { more: choice });
}

function countedWords(counted, minutes) {
  const seconds = (Date.parse(counted.to) - Date.parse(counted.from)) / 1000;
  const late = seconds < minutes * 60 * 0.99 ? `Too many to count: this is the last ${coarse(seconds)} only. ` : "";
  const accepted = `${plural(counted.operations, "operation")} accepted.`;
  return late + (counted.complete ? accepted : `A sample: ${accepted}`);
}

const ratioWords = ({ amplification: ratio }) => (ratio === null ? "" : `${ratio.toFixed(2)} attempts per operation.`);

function dependencies({ circuits, counted }) {
  if (circuits.error) return card("Dependencies", notice(circuits.error));
  const cards = circuits.map((circuit) => circuitCard(circuit, counted.error ? null : counted));
  return card("Dependencies", h("div", { class: "circuits" }, cards), { more: h("a", { href: link("circuits") }, "All"), kind: "bare" });
}

function groups({ groups: found }) {
  const more = h("a", { href: link("dead-letters") }, "All");
  if (found.error) return card("Dead letters by cause", notice(found.error), { more });
  if (!found.items.length) return card("Dead letters by cause", h("p", { class: "empty" }, "No dead letter is open."), { more });
  const row = (group) => h("li", { data: { key: group.group } },
    h("a", { class: "group", href: link("dead-letters", { status: "open", group: group.group }) },
      h("strong", { class: "count" }, number(group.count)),
      h("span", { class: "group-words" }, h("span", {}, words(group.sample.reason), " ", h("span", { class: "dim" }, group.sample.dependency ?? "no dependency")), h("small", {}, group.sample.detail)),
      h("small", { class: "dim ages" }, h("span", {}, "first ", ago(group.first_seen_at)), h("span", {}, "last ", ago(group.last_seen_at)))));
  return card("Dead letters by cause", h("ul", { class: "groups" }, found.items.map(row)), { more });
}

function oldest(outbox) {
  if (outbox.error || !outbox.items.length) return null;
  const first = outbox.items.reduce((a, b) => (a.pending_since < b.pending_since ? a : b));
  return { event: first, seconds: Math.max(0, (now() - Date.parse(first.pending_since)) / 1000) };
}

function outbox({ outbox: pending, failed }) {
  const more = h("a", { href: link("outbox", failed.items?.length ? { state: "failed" } : {}) }, "All");
  if (pending.error) return card("Outbox", notice(pending.error), { more });
  const first = oldest(pending);
  const waiting = first
    ? h("p", {}, `${atLeast(number(pending.items.length), !pending.next_cursor)} pending, the oldest of these `, ago(first.event.pending_since), ": ", operationLink(first.event.operation_id, first.event.type))
    : h("p", { class: "empty" }, "Nothing is waiting to be sent.");
  const bad = (failed.items ?? []).slice(0, SHOWN).map((event) => h("li", { data: { key: event.event_id } },
    badge("failed"), h("span", {}, operationLink(event.operation_id, event.type), " ", h("small", { class: "dim" }, event.detail ?? "")), ago(event.created_at)));
  return card("Outbox", [waiting, bad.length ? h("ul", { class: "lines" }, bad) : null], { more });
}

function lately({ counted, letters }) {
  const soon = counted.unfinished?.next_attempts ?? [];
  const lost = letters.items ?? [];
  if (!soon.length && !lost.length) return null;
  const next = (one) => h("li", { data: { key: one.operation_id } }, badge(one.status), operationLink(one.operation_id, one.key), h("span", { class: "dim" }, one.dependency), until(one.next_attempt_at));
  const ended = (one) => h("li", { data: { key: one.id } }, deadLetterLink(one.id, one.key ?? one.id),
    h("span", { class: "dim" }, [words(one.reason), one.dependency].filter(Boolean).join(", ")), ago(one.created_at));
  return h("div", { class: "pair", data: { key: "soon" } },
    card("Next attempts", soon.length ? h("ul", { class: "lines" }, soon.map(next)) : h("p", { class: "empty" }, "No operation waits.")),
    card("Latest dead letters", lost.length ? h("ul", { class: "lines" }, lost.map(ended)) : h("p", { class: "empty" }, "No dead letter is open.")));
}
