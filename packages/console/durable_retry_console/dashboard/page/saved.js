// Views that a person has named: addresses with their filters, kept in this browser.

import { go, h, link } from "./dom.js";
import { ask, button } from "./pieces.js";

const SAVED = "saved-views";

/** What was saved, as [{path, name, query}]; nothing where the browser's store was changed by other hands. */
function readSaved() {
  try {
    return JSON.parse(localStorage.getItem(SAVED) ?? "[]").filter(({ path, name, query }) => typeof path === "string" && name && query);
  } catch {
    return [];
  }
}

function write(views) {
  localStorage.setItem(SAVED, JSON.stringify(views));
  window.dispatchEvent(new Event("hashchange")); // The page draws itself anew.
}

/** The named views of a place as links, and the offer to name the present one. */
export function savedViews(path, query) {
  const { cursor, ...present } = query;
  const all = readSaved();
  const here = all.filter((view) => view.path === path);
  const chosen = here.find((view) => link(path, view.query) === link(path, present));
  if (!here.length && !Object.keys(present).length) return null;
  const forget = (view) => () => write(readSaved().filter((other) => other.path !== path || other.name !== view.name));
  const chip = (view) => h("li", { class: "chip", data: { key: view.name } },
    h("a", { href: link(path, view.query), "aria-current": view === chosen ? "page" : null }, view.name),
    h("button", { type: "button", title: `Forget “${view.name}”`, "aria-label": `Forget “${view.name}”`, on: { click: forget(view) } }, "×"));
  const save = async () => {
    const given = await ask({ title: "Save this view", words: "The name is kept in this browser. To share the view, send its address.", fields: [{ name: "name", label: "Name" }], action: "Save" });
    const name = given?.name?.trim();
    if (name) write([...readSaved().filter((view) => view.path !== path || view.name !== name), { path, name, query: present }]);
  };
  return h("nav", { class: "saved", "aria-label": "Saved views", data: { key: "saved" } },
    here.length ? h("ul", {}, here.map(chip)) : null,
    chosen ? null : Object.keys(present).length ? button("Save this view…", save, "quiet") : null,
    Object.keys(present).length ? button("Clear the filters", () => go(path), "quiet") : null);
}
