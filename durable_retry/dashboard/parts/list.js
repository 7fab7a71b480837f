// Lists as files.

import { h } from "../dom.js";
import { plural } from "../format.js";
import { button } from "./pieces.js";
import { go, link } from "../route.js";

/** The text of a CSV file (RFC 4180). */
export function csv(header, rows) {
  return [header, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function cell(value) {
  let text = value === null || value === undefined ? "" : String(value);
  // A spreadsheet would run these as a formula; they come from whoever called the API.
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Hand a text to the browser as a file. */
export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// A list of the API: filters in the address, a page at a time, the page as CSV.


const PAGE = 50;

/** The query for a list's page, from the address. */
export const pageQuery = (query, names) => ({
  limit: PAGE,
  cursor: query.cursor,
  ...Object.fromEntries(names.map((name) => [name, query[name]])),
});

/**
 * A table. A column is {name, cell(item), text(item)}: `cell` for the page, `text` for the CSV file.
 */
export function table(label, columns, items, { keyOf, empty = "Nothing here." } = {}) {
  if (!items.length) return h("p", { class: "empty" }, empty);
  // The roles are spelled out since a narrow window shows rows as cards, and `display` would take them away.
  const head = h("tr", { role: "row" }, columns.map((column) => h("th", { role: "columnheader", scope: "col", class: column.class }, column.name)));
  const row = (item) => h("tr", { role: "row", data: keyOf ? { key: keyOf(item) } : {} },
    columns.map((column) => h("td", { role: "cell", class: column.class, data: { label: column.name, ...emptiness(column, item) } }, column.cell(item))));
  return h("div", { class: "table" }, h("table", { role: "table", "aria-label": label },
    h("thead", { role: "rowgroup" }, head), h("tbody", { role: "rowgroup" }, items.map(row))));
}

/** Marks what a narrow window, where each value has a line of its own, can do without. */
function emptiness(column, item) {
  const text = column.text?.(item);
  return column.text && (text === null || text === undefined || text === "") ? { empty: "" } : {};
}

/** The line under a table: how many, further pages, CSV. */
export function pager(path, query, page, columns, file) {
  const { cursor, ...filters } = query;
  return h("nav", { class: "pager", "aria-label": "Pages" },
    h("span", { class: "dim" }, `${plural(page.items.length, "row")} on this page`),
    h("span", { class: "spread" }),
    button("CSV of this page", () => save(columns, page.items, file), "quiet"),
    cursor ? h("a", { class: "button quiet", href: link(path, filters) }, "First page") : null,
    page.next_cursor ? h("a", { class: "button", href: link(path, { ...filters, cursor: page.next_cursor }) }, "Next page") : null);
}

function save(columns, items, file) {
  const written = columns.filter((column) => column.text);
  const rows = items.map((item) => written.map((column) => column.text(item)));
  download(`${file}.csv`, csv(written.map((column) => column.name), rows));
}

/**
 * Filters over a list; a change goes to the address. A filter is {name, label} for text, with `choices`
 * [value, words] for a few, or with `instant` for a date and time in UTC.
 */
export function filters(path, query, given) {
  const change = (name, isInstant) => (event) => {
    const value = event.target.value.trim();
    go(path, { ...query, cursor: null, [name]: isInstant && value ? new Date(`${value}Z`).toISOString() : value });
  };
  const field = ({ name, label, choices, instant = false }) => {
    const shared = { id: `filter-${name}`, on: { change: change(name, instant) } };
    const input = choices
      ? h("select", shared, [["", "Any"], ...choices].map(([value, text]) => h("option", { value, selected: (query[name] ?? "") === value }, text)))
      : h("input", { ...shared, type: instant ? "datetime-local" : "text", value: (query[name] ?? "").slice(0, instant ? 16 : undefined), spellcheck: "false" });
    return h("div", { class: "field", data: { key: `filter-${name}` } }, h("label", { for: `filter-${name}` }, label), input);
  };
  return h("form", { class: "filters", on: { submit: (event) => event.preventDefault() } }, given.map(field));
}
