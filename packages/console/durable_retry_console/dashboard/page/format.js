// Words for numbers and instants, and the clocks that tick on the page.

import { h } from "./dom.js";

let offsetMs = 0;

/** Learn the server's clock from a response, for countdowns on machines whose own is wrong. */
export function learnClock(dateHeader) {
  const there = Date.parse(dateHeader ?? "");
  const difference = there + 500 - Date.now();
  if (Number.isFinite(difference)) offsetMs = Math.abs(difference) > 3_000 ? difference : 0;
}

/** The server's time, in milliseconds. */
export const now = () => Date.now() + offsetMs;

const UNITS = [["d", 86_400], ["h", 3_600], ["min", 60], ["s", 1]];

/** A duration of `seconds` in at most two units: `2 h 5 min`, `1.37 s`, `41 ms`. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${trimmed(seconds, seconds < 10 ? 2 : 1)} s`;
  let rest = Math.round(seconds);
  const parts = [];
  for (const [unit, size] of UNITS) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count || parts.length) parts.push([count, unit]);
  }
  return parts.slice(0, 2).filter(([count]) => count).map(([count, unit]) => `${count} ${unit}`).join(" ");
}

function trimmed(value, digits) {
  return String(Number(value.toFixed(digits)));
}

/** A duration in whole units, which may change once a second without jumping about. */
export const coarse = (seconds) => (seconds < 1 ? "0 s" : duration(Math.floor(seconds)));

export const number = (value) => (value ?? 0).toLocaleString("en");
export const percent = (ratio) => (ratio === null || ratio === undefined ? "–" : `${trimmed(ratio * 100, ratio < 0.1 ? 1 : 0)} %`);
export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;
/** A count of things, in words where there are more than were counted. */
export const atLeast = (count, isComplete) => `${isComplete ? "" : "at least "}${number(count)}`;
/** `waiting_retry` as `waiting retry`, `RetriesExhausted` as `Retries exhausted`. */
export function words(name) {
  return capital(STATE_WORDS[name] ?? String(name ?? "").replace(/_/g, " ").replace(/([a-z])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`));
}

const STATE_WORDS = { waiting_retry: "waits for a retry", waiting_throttle: "waits for the end of a pause", waiting_circuit: "waits for the circuit", waiting_order: "waits for its turn", forced_open: "held open" };

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Whose `count` things are, by their limit keys; nothing where they have none. */
export function whose(limitKeys, count) {
  if (!limitKeys) return "";
  const { keys, most } = limitKeys;
  const named = Object.entries(most);
  if (keys === 1 && named[0][1] === count) return `of ${named[0][0]}`;
  const more = keys > named.length ? ` and ${plural(keys - named.length, "more")}` : "";
  return `of ${plural(keys, "limit key")}: ${named.map(([key, part]) => `${key} ${number(part)}`).join(", ")}${more}`;
}

// One zone for every time on the page, those that are typed included: the browser's own, or UTC.

const TIMES = "times";
const HOURS = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const formatsOf = (timeZone) => ({
  clock: new Intl.DateTimeFormat(undefined, { ...HOURS, second: "2-digit", timeZone }),
  minutes: new Intl.DateTimeFormat(undefined, { ...HOURS, timeZone }),
  day: new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", timeZone }),
  short: new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", ...HOURS, timeZone }),
  full: new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long", hourCycle: "h23", timeZone }),
  offset: new Intl.DateTimeFormat("en", { timeZoneName: "shortOffset", timeZone }),
});
const FORMATS = { local: formatsOf(undefined), utc: formatsOf("UTC") };

export const zone = {
  get isUtc() {
    return localStorage.getItem(TIMES) === "utc";
  },
  /** What the zone is called beside a field. */
  get name() {
    return this.isUtc ? "UTC" : "local";
  },
  /** How far it is from UTC now: `UTC+1`, or `UTC`. */
  get offset() {
    if (this.isUtc) return "UTC";
    return formats().offset.formatToParts(now()).find((part) => part.type === "timeZoneName").value.replace("GMT", "UTC");
  },
  turn() {
    localStorage.setItem(TIMES, this.isUtc ? "local" : "utc");
  },
};

const formats = () => (zone.isUtc ? FORMATS.utc : FORMATS.local);

/** An instant of the API as the value of a field for date and time. */
export function typed(instant) {
  const date = new Date(instant);
  if (Number.isNaN(date.getTime())) return "";
  const shown = zone.isUtc ? date : new Date(date - date.getTimezoneOffset() * 60_000);
  return shown.toISOString().slice(0, shown.getUTCSeconds() ? 19 : 16);
}

/** What was typed into a field for date and time as an instant of the API. */
export const instantOf = (value) => new Date(zone.isUtc ? `${value}Z` : value).toISOString();

/** An instant as time of day, with the day when it is not the last 20 hours. */
export function time(instant) {
  if (!instant) return "–";
  const date = new Date(instant);
  return Math.abs(now() - date) < 72_000_000 ? formats().clock.format(date) : formats().short.format(date);
}

/** A span of milliseconds since 1970 as two times of day, with the day when it is not the last 20 hours. */
export function span(begin, end) {
  const isLate = Math.abs(now() - begin) < 72_000_000;
  const last = isLate || end - begin < 72_000_000 ? formats().minutes : formats().short;
  return `${(isLate ? formats().minutes : formats().short).format(begin)}–${last.format(end)}`;
}

const [MINUTE, HOUR, DAY] = [60_000, 3_600_000, 86_400_000];
const TICKS = [MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY];
const MOST_TICKS = 7;

/** Round instants of the page's zone between two others, for an axis. */
export function ticksOf(begin, end) {
  const step = TICKS.find((one) => (end - begin) / one <= MOST_TICKS) ?? TICKS.at(-1);
  const shift = zone.isUtc ? 0 : new Date(begin).getTimezoneOffset() * MINUTE;
  const times = [];
  for (let at = Math.ceil((begin - shift) / step) * step + shift; at <= end; at += step) times.push(at);
  return { times, isDays: step >= DAY };
}

/** An instant on an axis. */
export const tickText = (at, isDays) => (isDays ? formats().day : formats().minutes).format(at);

/** All of an instant, with its zone. */
export const inFull = (instant) => formats().full.format(new Date(instant));

/** A `time` element that shows how long ago an instant was, and goes on doing so. */
export function ago(instant) {
  return instant ? ticking(instant, "ago") : h("span", {}, "–");
}

/** A `time` element that counts down to an instant. */
export function until(instant, prefix = "in ") {
  return instant ? ticking(instant, "until", prefix) : h("span", {}, "–");
}

/** A `time` element that shows an instant. */
export function at(instant) {
  return instant ? h("time", { datetime: instant, title: inFull(instant) }, time(instant)) : h("span", {}, "–");
}

/** An instant with how long ago it was. */
export const when = (instant) => (instant ? h("span", {}, at(instant), " · ", ago(instant)) : h("span", {}, "–"));

const INSTANTS = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)/;
const spoken = (text, show) => String(text ?? "").split(INSTANTS).map((part, index) => (index % 2 ? show(part) : part));

/** A text of the API with its instants in the zone of the page, as texts and elements. */
export const said = (text) => spoken(text, at);

/** The same as one text, for a title or a file. */
export const saidText = (text) => spoken(text, time).join("");

const OLD_MS = 5_000;

/** The oldest of the instants at which something was read, behind what it is called; nothing where that was just now. */
export const asOf = (...instants) => read(" as of ", instants);

/** The same of what was read in parts, each at an instant of its own. */
export const someAsOf = (...instants) => read(" some of it as of ", instants);

function read(words, instants) {
  const [oldest] = instants.filter((instant) => instant && now() - Date.parse(instant) > OLD_MS).sort();
  return oldest ? h("small", { class: "dim" }, words, at(oldest)) : null;
}

function ticking(instant, kind, prefix = "") {
  const data = { tick: kind, prefix };
  return h("time", { datetime: instant, title: inFull(instant), data }, timeText(instant, kind, prefix));
}

function timeText(instant, kind, prefix) {
  const seconds = (now() - Date.parse(instant)) / 1000;
  if (kind === "ago") {
    if (seconds < 1) return "just now";
    return `${coarse(seconds < 60 || seconds >= 3_600 ? seconds : seconds - (seconds % 60))} ago`; // Minutes need no seconds.
  }
  return seconds > 0 ? DUE : `${prefix}${coarse(-seconds + 0.999)}`;
}

const DUE = "due now";

/** Let all ticking times on the page tick; a `due` event tells when one that counts down has come. */
export function startTicking() {
  setInterval(() => {
    if (document.hidden) return;
    let isDue = false;
    for (const one of document.querySelectorAll("time[data-tick]")) {
      const text = timeText(one.getAttribute("datetime"), one.dataset.tick, one.dataset.prefix);
      if (one.textContent === text) continue;
      one.textContent = text;
      isDue ||= text === DUE;
    }
    if (isDue) document.dispatchEvent(new Event("due"));
  }, 1_000);
}
