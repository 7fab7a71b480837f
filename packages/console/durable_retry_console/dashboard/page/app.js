// The page: which view shows, its polling, and the tools in the header.

import { connection, key } from "./api.js";
import { announce, go, h, readRoute, show } from "./dom.js";
import { startTicking, time, zone } from "./format.js";
import { ask, empty, notice, tell, unread, wholeNames } from "./pieces.js";
import { Poller } from "./poll.js";
import { activityView } from "./views/activity.js";
import { alertsView } from "./views/alerts.js";
import { bulkActionsView, bulkActionView, newBulkActionView } from "./views/bulk.js";
import { causeView } from "./views/causes.js";
import { circuitsView, circuitView } from "./views/circuits.js";
import { deadLettersView, deadLetterView } from "./views/dead_letters.js";
import { findView } from "./views/find.js";
import { lanesView, laneView } from "./views/lanes.js";
import { metricsView } from "./views/metrics.js";
import { operationsView, operationView } from "./views/operations.js";
import { eventView, outboxView } from "./views/outbox.js";
import { overviewView } from "./views/overview.js";
import { policyView } from "./views/policy.js";
import { batchesView, batchView, sagasView, sagaView } from "./views/workflows.js";

// A view gets the route and answers {title, seconds, load(signal), render(data)}. `later` holds what takes longer, as
// parts that are asked for at their own pace; the view is drawn anew with each answer. `tab`, or `tabOf(data)`, names the
// tab where that is not the first part of its path.
// By the first part of the path: the view of all, that of one by its id, and what such an id looks like. The box above
// every view leads an id to its page and searches for anything else.
const VIEWS = {
  "": [overviewView],
  find: [findView],
  operations: [operationsView, operationView, /^op-[a-z2-7]{32}$/],
  "dead-letters": [deadLettersView, deadLetterView, /^dl-[0-9a-f]{32}$/],
  causes: [null, causeView],
  "bulk-actions": [bulkActionsView, (route) => (route.id === "new" ? newBulkActionView : bulkActionView)(route), /^bulk-[0-9a-f]{32}$/],
  circuits: [circuitsView, circuitView],
  metrics: [metricsView],
  outbox: [outboxView, eventView, /^op-[a-z2-7]{32}(\.\d+)?\.\d+$/],
  activity: [activityView],
  alerts: [alertsView],
  policy: [policyView],
  batches: [batchesView, batchView, /^batch-[a-z2-7]{32}$/],
  lanes: [lanesView, laneView],
  sagas: [sagasView, sagaView, /^saga-[a-z2-7]{32}$/],
};

const main = document.getElementById("main");
let poller = null;
let shown = null;

function navigate() {
  const route = readRoute();
  const isSamePlace = shown === route.path;
  poller?.stop();
  shown = route.path;
  const [folder, id, ...rest] = route.path.split("/");
  const view = rest.length ? null : VIEWS[folder]?.[id ? 1 : 0];
  const place = (view ?? nowhere)({ ...route, id: id && plain(id), reload: () => poller?.soon() });
  document.title = `${place.title} · Durable Retry`;
  markTab(place.tab ?? folder);
  document.getElementById("jump-field").value = (route.path === "find" && route.query.q) || "";
  if (!isSamePlace) main.replaceChildren();
  if (!main.hasChildNodes()) show(main, frame(place, h("p", { class: "loading" }, "Loading…")));
  if (!isSamePlace && main.dataset.visited) {
    main.focus({ preventScroll: true });
    window.scrollTo(0, 0);
    announce(place.title);
  }
  main.dataset.visited = "yes";
  poller = new Poller((signal) => refresh(place, signal), place.seconds ?? 5);
}

async function refresh(place, signal) {
  try {
    const update = (data) => {
      if (signal.aborted) return;
      if (place.tabOf) markTab(place.tabOf(data));
      show(main, frame(place, [unread(data), place.render(data)]));
    };
    const data = await place.load(signal);
    update(data);
    for (const part of Object.values(place.later ?? {})) part.ask(signal, () => update(data));
    return true;
  } catch (error) {
    if (signal.aborted) return true;
    if (error.status === undefined) {
      show(main, frame(place, notice({ message: `The dashboard itself failed: ${error.message}` })));
      throw error; // For the console, and for the poller, which slows down.
    }
    // What was shown stays while nobody answers: the banner says how old it is.
    const hasContent = main.querySelector(".loading") === null;
    if (error.status !== 0 || !hasContent) show(main, frame(place, notice(error)));
    return false;
  }
}

function frame(place, content) {
  return h("div", { class: "view", data: { key: shown } }, h("h1", { class: place.hideTitle ? "sr" : null }, place.title), content);
}

function plain(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // A stray per cent sign in an address typed by hand.
  }
}

function nowhere({ path }) {
  const render = () => empty(`There is no page “${path}”. `, h("a", { href: "#/" }, "To the overview"));
  return { title: "Page not found", seconds: 60, load: async () => null, render };
}

function markTab(name) {
  const tab = ["bulk-actions", "causes"].includes(name) ? "dead-letters" : name;
  for (const link of document.querySelectorAll("#tabs a")) {
    if (link.dataset.tab === tab) {
      if (link.ariaCurrent) continue; // It is drawn again and again, and a person may have scrolled on.
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else link.removeAttribute("aria-current");
  }
}

function showConnection() {
  const { awaySince, needsKey, lastAnswer } = connection;
  const state = awaySince ? "away" : needsKey ? "locked" : lastAnswer ? "on" : "wait";
  document.getElementById("live").className = `live ${state}`;
  document.getElementById("live-text").textContent = { away: "No answer", locked: "Needs a key", on: "Live", wait: "Connecting" }[state];
  const banner = document.getElementById("banner");
  banner.hidden = !awaySince && !needsKey;
  document.body.classList.toggle("stale", Boolean(awaySince));
  if (awaySince) banner.replaceChildren(...awayWords(awaySince, lastAnswer));
  else if (needsKey) banner.replaceChildren("The API needs a function key. ", h("button", { type: "button", on: { click: askForKey } }, "Enter a key"));
}

function awayWords(awaySince, lastAnswer) {
  const since = time(new Date(awaySince).toISOString());
  const old = lastAnswer ? ` What you see is from ${time(new Date(lastAnswer).toISOString())}.` : "";
  return [`The API has not answered since ${since}.${old} Trying again. `, h("button", { type: "button", on: { click: () => poller?.soon() } }, "Try now")];
}

async function askForKey() {
  const given = await ask({
    title: "Function key",
    words: "Sent as x-functions-key with each request. Kept in this tab only, until it is closed. Leave it empty to remove it.",
    fields: [{ name: "key", label: "Key", type: "password", value: key.get(), optional: true }],
    action: "Use it",
  });
  if (!given) return;
  key.set(given.key?.trim());
  navigate();
}

function jump(event) {
  event.preventDefault();
  const words = document.getElementById("jump-field").value.trim();
  if (!words) return;
  const folder = Object.keys(VIEWS).find((name) => VIEWS[name][2]?.test(words));
  if (folder) go(`${folder}/${words}`);
  else go("find", { q: words });
}

/** Name a tool of the header; a narrow window shows only what is chosen. */
function tool(id, words, chosen) {
  document.getElementById(id).replaceChildren(h("span", { class: "roomy" }, words), chosen);
}

const THEMES = ["auto", "light", "dark"];

function applyTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  tool("theme-button", "Colours: ", name);
}

function nextTheme() {
  const name = THEMES[(THEMES.indexOf(localStorage.getItem("theme") ?? "auto") + 1) % THEMES.length];
  localStorage.setItem("theme", name);
  applyTheme(name);
}

function showZone() {
  tool("zone-button", zone.isUtc ? "Times: " : "Times: local, ", zone.offset);
}

function nextZone() {
  zone.turn();
  showZone();
  navigate();
}

function onKey(event) {
  const isTyping = event.target.closest?.("input, textarea, select, dialog");
  const [, press] = KEYS[event.key] ?? [];
  if (!press || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  press();
}

const KEYS = {
  "/": ["find", () => document.getElementById("jump-field").focus()],
  j: ["next row", () => toRow(1)],
  k: ["row before", () => toRow(-1)],
  "?": ["these keys", showKeys],
};

/** Move to the link of a row; Enter then opens it. */
function toRow(step) {
  const links = [...main.querySelectorAll("tbody tr")].map((row) => row.querySelector("a")).filter(Boolean);
  const at = links.findIndex((one) => one.closest("tr").contains(document.activeElement));
  links[at < 0 ? (step > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + step, 0), links.length - 1)]?.focus();
}

function showKeys() {
  const rows = Object.entries(KEYS).map(([key, [words]]) => h("li", {}, h("kbd", {}, key), ` ${words}`));
  tell("Keys", h("ul", { class: "keys" }, rows));
}

applyTheme(THEMES.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "auto");
showZone();
document.getElementById("zone-button").addEventListener("click", nextZone);
document.getElementById("theme-button").addEventListener("click", nextTheme);
document.getElementById("key-button").addEventListener("click", askForKey);
document.getElementById("jump").addEventListener("submit", jump);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // The address holds the view, not a place on the page.
  main.focus();
});
document.addEventListener("keydown", onKey);
document.addEventListener("copy", wholeNames);
connection.addEventListener("change", showConnection);
window.addEventListener("hashchange", navigate);
window.addEventListener("online", () => poller?.soon());
startTicking();
navigate();
