// A dialog that asks for a few values. The browser keeps the focus inside and closes it with Escape.

import { h } from "../dom.js";

/**
 * Ask for values; null when the person thinks better of it.
 * A field is {name, label, type: text|password|number|textarea, value, hint, optional, min, max}.
 */
export function ask({ title, words = null, fields = [], action, kind = "" }) {
  return new Promise((resolve) => {
    const form = h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, title), words ? h("p", { class: "dim" }, words) : null,
      fields.map(fieldOf),
      h("div", { class: "actions" },
        h("button", { type: "button", class: "quiet", on: { click: () => dialog.close() } }, "Not now"),
        h("button", { type: "submit", class: kind || "main" }, action)));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    let given = null;
    form.addEventListener("submit", () => (given = Object.fromEntries(new FormData(form))));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(given);
    });
    document.body.append(dialog);
    dialog.showModal();
    form.querySelector("input, textarea")?.focus();
  });
}

/** One labelled field. */
export function fieldOf({ name, label, type = "text", value = "", hint = null, optional = false, min, max, step, choices, on }) {
  const shared = { name, id: `field-${name}`, value, required: !optional, "aria-describedby": hint ? `hint-${name}` : null, on };
  let input;
  if (choices) input = h("select", shared, choices.map(([text, word]) => h("option", { value: text, selected: text === value }, word)));
  else if (type === "textarea") input = h("textarea", { ...shared, rows: 3 });
  else input = h("input", { ...shared, type, min, max, step, autocomplete: "off" });
  return h("div", { class: "field" }, h("label", { for: `field-${name}` }, label), input, hint ? h("small", { id: `hint-${name}` }, hint) : null);
}
