// Small pieces that several views are made of.

import { h } from "../dom.js";
import { words } from "../format.js";
import { link } from "../route.js";

/** The states of an operation in the order of its life. */
export const STATES = ["pending", "running", "waiting_retry", "waiting_circuit", "succeeded", "dead_lettered", "cancelled"];
export const WAITING = ["waiting_retry", "waiting_circuit"];
export const FINISHED = ["succeeded", "dead_lettered", "cancelled"];

/** A state as a word with a mark: colour is never all that tells states apart. */
export const badge = (state) => h("span", { class: `badge is-${state}` }, words(state));

/** Why something cannot be shown. */
export function notice(error) {
  if (error.isLoading) return h("p", { class: "loading-part" }, "Loading…");
  const isMissing = error.status === 404;
  return h("div", { class: `notice ${isMissing ? "calm" : "bad"}`, role: "status" },
    h("strong", {}, isMissing ? "Not found" : "Not available"), h("span", {}, ` ${error.message}`),
    error.lines?.length ? h("ul", {}, error.lines.map((line) => h("li", {}, line))) : null);
}

/** A card with a heading; `more` stands at its right. */
export function card(title, content, { more = null, key = title, kind = "" } = {}) {
  return h("section", { class: `card ${kind}`, data: { key } }, h("header", {}, h("h2", {}, title), more), content);
}

/** Names and values as a description list; empty values are left out. */
export function facts(pairs) {
  const given = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, given.map(([name, value]) => h("div", { data: { key: name } }, h("dt", {}, name), h("dd", {}, value))));
}

/** A number with its name, as a link when it leads somewhere. */
export function figure(value, name, { href = null, kind = "", note = null } = {}) {
  const content = [h("strong", {}, value), h("span", {}, name), note ? h("small", {}, note) : null];
  return href ? h("a", { class: `figure ${kind}`, href }, content) : h("div", { class: `figure ${kind}` }, content);
}

export const mono = (text) => h("code", {}, text);
export const json = (value) => h("pre", { tabindex: "0" }, typeof value === "string" ? value : JSON.stringify(value, null, 2));
export const button = (text, click, kind = "") => h("button", { type: "button", class: kind, on: { click } }, text);
const SHORT = 14;
/** An id cut for a table; its title tells all of it. */
export const short = (id) => (id && id.length > SHORT + 1 ? `${id.slice(0, SHORT)}…` : id);
export const operationLink = (id, text = id) => (id ? h("a", { href: link(`operations/${encodeURIComponent(id)}`), title: id }, text) : h("span", {}, "–"));
export const deadLetterLink = (id, text = id) => h("a", { href: link(`dead-letters/${encodeURIComponent(id)}`), title: id }, text);
export const circuitLink = (name) => (name ? h("a", { href: link(`circuits/${encodeURIComponent(name)}`) }, name) : h("span", { class: "dim" }, "none"));
