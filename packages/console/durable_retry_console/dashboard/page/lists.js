// Lists of the API: filters in the address, a page at a time, the page as a CSV file.

import { get, getSeldom } from "./api.js";
import { go, h, link, readRoute } from "./dom.js";
import { instantOf, number, plural, typed, zone } from "./format.js";
import { button, unreadMark } from "./pieces.js";
import { savedViews } from "./saved.js";

/** The text of a CSV file (RFC 4180). */
export function csv(header, rows) {
  return [header, ...rows].map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
}

function csvCell(value) {
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

// A narrow window shows each row as a card.
const [PAGE, SHORT_PAGE] = [50, 10];
const isNarrow = matchMedia("(max-width: 46rem)");

/** The query for a list's page, from the address. */
export const pageQuery = (query, names) => ({
  limit: isNarrow.matches ? SHORT_PAGE : PAGE,
  cursor: query.cursor,
  ...Object.fromEntries(names.map((name) => [name, query[name]])),
});

/** Filters by what decides when an operation has its turn. */
export const TURN = [
  { name: "order_key", label: "Order key", more: true },
  { name: "debounce_key", label: "Debounce key", more: true },
  { name: "priority", label: "Priority", choices: [["high", "High"], ["normal", "Normal"], ["low", "Low"]], more: true },
];
/** Filters by what operations and dead letters share. */
export const SHARED = [{ name: "correlation_id", label: "Correlation id", more: true }, ...TURN];

/**
 * A table. A column is {name, cell(item), text(item)}: `cell` for the page, `text` for the CSV file. The name of one that
 * `isBare` is not shown above it.
 */
export function table(label, columns, items, { keyOf, empty = "Nothing here." } = {}) {
  if (!items.length) return h("p", { class: "empty" }, empty);
  // The roles are spelled out since a narrow window shows rows as cards, and `display` would take them away.
  const head = h("tr", { role: "row" }, columns.map((column) => h("th", { role: "columnheader", scope: "col", class: column.class }, column.isBare ? h("span", { class: "sr" }, column.name) : column.name)));
  const named = columns.find((column) => column.class === "wide") ?? columns[0];
  const row = (item) => h("tr", { role: "row", data: keyOf ? { key: keyOf(item) } : {} },
    columns.map((column) => h("td", { role: "cell", class: column.class, data: { label: column.name, ...emptiness(column, item) } }, column.cell(item), column === named ? unreadMark(item) : null)));
  return h("div", { class: "table" }, h("table", { role: "table", "aria-label": label },
    h("thead", { role: "rowgroup" }, head), h("tbody", { role: "rowgroup" }, items.map(row))));
}

/** Marks what a narrow window, where each value has a line of its own, can do without. */
function emptiness(column, item) {
  const text = column.text?.(item);
  return column.text && (text === null || text === undefined || text === "") ? { empty: "" } : {};
}

/** The line under a table: how many, further pages, CSV. `total` is how many match on all pages, null while it is not known. */
export function pager(path, query, page, columns, file, total = null) {
  const { cursor, ...filters } = query;
  return h("nav", { class: "pager", "aria-label": "Pages" },
    h("span", { class: "dim" }, `${plural(page.items.length, "row")} on this page${total === null ? "" : `, ${number(total)} in all`}`),
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

// What a filter suggests, by the name of the filter: where the API has the names, and those that were read.
const SUGGESTED = { dependency: { path: "dependencies", names: [] }, handler: { path: "handlers", names: [] } };

/** The names that a filter suggests; none until they were read. */
function suggestions({ name, suggest }) {
  const known = SUGGESTED[name];
  if (!known) return suggest ?? null;
  getSeldom(known.path).then((page) => (known.names = page.items.map((one) => one.name)), () => {}); // Without them one types.
  return known.names;
}

/**
 * Filters over a list; a change goes to the address. A filter is {name, label} for text, with `choices`
 * [value, words] for a few (a `required` one is always chosen), with `instant` for a date and time in the zone of the
 * page, or with `suggest` for texts that are offered. A change of one takes away those that it `clears`. Those with `more` are folded away while unused.
 */
export function filters(path, query, given) {
  const change = ({ name, instant: isInstant, clears = [] }) => (event) => {
    const value = event.target.value.trim();
    // The address as it is now: an earlier change may not have been drawn yet.
    go(path, { ...readRoute().query, cursor: null, ...Object.fromEntries(clears.map((other) => [other, null])), [name]: isInstant && value ? instantOf(value) : value });
  };
  const field = (filter) => {
    const { name, label, choices, required = false, instant = false } = filter;
    const offered = suggestions(filter);
    const value = instant ? typed(query[name]) : (query[name] ?? "");
    const shared = { id: `filter-${name}`, data: { follow: value }, on: { change: change(filter) } };
    const input = choices
      ? h("select", shared, [...(required ? [] : [["", "Any"]]), ...choices].map(([choice, text]) => h("option", { value: choice, selected: choice === value }, text)))
      : h("input", { ...shared, list: offered ? `known-${name}` : null, type: instant ? "datetime-local" : "text", value, spellcheck: "false" });
    return h("div", { class: "field", data: { key: `filter-${name}` } }, h("label", { for: `filter-${name}` }, instant ? `${label} (${zone.name})` : label), input,
      offered ? h("datalist", { id: `known-${name}` }, offered.map((text) => h("option", { value: text }))) : null);
  };
  const more = given.filter((one) => one.more);
  return h("form", { class: "filter-form", on: { submit: (event) => event.preventDefault() } },
    h("div", { class: "filters" }, given.filter((one) => !one.more).map(field)),
    more.length ? h("details", { open: more.some(({ name }) => query[name]) }, h("summary", {}, "More filters"), h("div", { class: "filters" }, more.map(field))) : null,
    savedViews(path, query));
}

/**
 * A view of a list of the API: filters, a table, and what leads to other pages. `list` is its path, `file` the columns of
 * the CSV file, and `nothing(page)` the words in place of a table without rows.
 */
export function listView({ path, query }, { title, list, filters: given, columns, file = columns, keyOf, nothing, seconds }) {
  return {
    title, seconds,
    load: (signal) => get(list, pageQuery(query, given.map(({ name }) => name)), signal),
    render: (page) => [filters(path, query, given), table(title, columns, page.items, { keyOf, empty: nothing(page) }), pager(path, query, page, file, list)],
  };
}
