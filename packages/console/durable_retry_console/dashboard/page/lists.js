// Lists of the API: filters in the address, a page at a time, the page as a CSV file.

import { get, getSeldom } from "./api.js";
import { go, h, link, readRoute } from "./dom.js";
import { ago, instantOf, number, plural, typed, words, zone } from "./format.js";
import { badge, button, circuitLink, clip, empty, linkButton, sharedLink, unreadMark } from "./pieces.js";
import { savedViews } from "./saved.js";

/** The text of a CSV file (RFC 4180). */
function csv(header, rows) {
  return [header, ...rows].map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
}

function csvCell(value) {
  let text = value === null || value === undefined ? "" : String(value);
  // A spreadsheet would run these as a formula; they come from whoever called the API.
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Hand a text to the browser as a file. */
function download(name, text) {
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
export const pageQuery = (query, given = []) => ({
  limit: isNarrow.matches ? SHORT_PAGE : PAGE,
  cursor: query.cursor,
  ...Object.fromEntries(given.map(({ name }) => [name, query[name]])),
});

/** Names as choices of a filter. */
export const named = (names) => names.map((name) => [name, words(name)]);

/** Filters by when something was created, or what else one calls that. */
export const created = (verb = "Created", latest = {}) => [
  { name: "created_after", label: `${verb} after`, instant: true },
  { name: "created_before", label: `${verb} before`, instant: true, ...latest },
];
/** Those that are folded away while unused. */
export const folded = (filters) => filters.map((filter) => ({ ...filter, more: true }));

/** Filters by what decides when an operation has its turn. */
export const TURN = folded([
  { name: "order_key", label: "Order key" },
  { name: "limit_key", label: "Limit key" },
  { name: "debounce_key", label: "Debounce key" },
  { name: "priority", label: "Priority", choices: named(["high", "normal", "low"]) },
]);
/** Filters by what operations and dead letters share. */
export const SHARED = [...folded([{ name: "key", label: "Key" }, { name: "correlation_id", label: "Correlation id" }]), ...TURN];
/** Filters by where an operation comes from. */
export const ORIGIN = folded([{ name: "handler", label: "Handler" }, { name: "source", label: "Source" }]);

// Columns. A column is {name, cell(item), text(item)}: `cell` for the page, `text` for the CSV file; what has only one of
// them is only there. The name of one that `isBare` is not shown above it.

/** The column of a field: `show` makes what the page shows of its value, the file has the value itself. */
export const column = (field, name, show = (value) => value ?? "–", kind = null) => ({ name, class: kind, cell: (one) => show(one[field], one), text: (one) => one[field] });

/** Columns of counts, named as their fields. */
export const counts = (...fields) => fields.map((field) => column(field, words(field), number, "number"));

/** Columns that only the file has. */
export const inFile = (...fields) => fields.map((field) => ({ name: field, text: (one) => one[field] }));

/** A column of what is made of an item, a text on the page and in the file. */
export const textColumn = (name, text) => ({ name, class: "wide", cell: (one) => clip(text(one)), text });

export const STATUS = column("status", "Status", (status) => badge(status));
export const CREATED = column("created_at", "Created", ago);
/** Shown where any has one. */
export const LIMIT_KEY = { ...column("limit_key", "Limit key", (key) => sharedLink("limit_key", key)), isSparse: true };
export const DEPENDENCY = column("dependency", "Dependency", (name) => (name ? circuitLink(name) : "–"));

/** A table with the columns that the page shows. */
export function table(label, given, items, { keyOf, nothing = "Nothing here." } = {}) {
  if (!items.length) return empty(nothing);
  const columns = given.filter((column) => column.cell && (!column.isSparse || items.some((item) => column.text(item))));
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

/**
 * A table with the line under it: how many, further pages, CSV. `page` is {items, next_cursor} of the API, `total` how
 * many match on all pages, null while it is not known.
 */
export const pagedTable = (label, columns, page, { path, query, file, total = null, keyOf, nothing }) => [
  table(label, columns, page.items, { keyOf, nothing: page.next_cursor ? "No match so far; the next page looks further." : nothing }),
  pager(path, query, page, columns, file, total)];

function pager(path, query, page, columns, file, total) {
  const { cursor, ...filters } = query;
  return h("nav", { class: "pager", "aria-label": "Pages" },
    h("span", { class: "dim" }, `${plural(page.items.length, "row")} on this page${total === null ? "" : `, ${number(total)} in all`}`),
    h("span", { class: "spread" }),
    button("CSV of this page", () => save(columns, page.items, file), "quiet"),
    cursor ? linkButton("First page", path, filters, "quiet") : null,
    page.next_cursor ? linkButton("Next page", path, { ...filters, cursor: page.next_cursor }) : null);
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
 * [value, words] for a few (a `required` one is always chosen, `unset` are the words for none), with `instant` for a date
 * and time in the zone of the page, with `type` number, or with `suggest` for texts that are offered. A change of one takes away those that it `clears`. Those with `more` are folded away while unused.
 */
export function filters(path, query, given) {
  const change = ({ name, instant: isInstant, clears = [] }) => (event) => {
    const value = event.target.value.trim();
    // The address as it is now: an earlier change may not have been drawn yet.
    go(path, { ...readRoute().query, cursor: null, ...Object.fromEntries(clears.map((other) => [other, null])), [name]: isInstant && value ? instantOf(value) : value });
  };
  const field = (filter) => {
    const { name, label, choices, required = false, unset = "Any", instant = false, type = instant ? "datetime-local" : "text" } = filter;
    const offered = suggestions(filter);
    const value = instant ? typed(query[name]) : (query[name] ?? "");
    const shared = { id: `filter-${name}`, data: { follow: value }, on: { change: change(filter) } };
    const input = choices
      ? h("select", shared, [...(required ? [] : [["", unset]]), ...choices].map(([choice, text]) => h("option", { value: choice, selected: choice === value }, text)))
      : h("input", { ...shared, list: offered ? `known-${name}` : null, type, step: type === "number" ? "any" : null, value, spellcheck: "false" });
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
 * A view of a list of the API: what is `above(page)`, filters, what one can do to those that match (`tools(page)`), and a
 * table. `list` is its path, `besides` are filters that have no field here, `nothing` the words in place of a table without rows, or makes them of the page; `total()` is
 * how many match on all pages.
 */
export function listView({ path, query }, { title, list, filters: given = [], besides = [], columns, keyOf, nothing, seconds, above, tools, total = () => null, file = list, ...others }) {
  return {
    title, seconds,
    load: (signal) => get(list, pageQuery(query, [...besides, ...given]), signal),
    render: (page) => [
      above?.(page), given.length ? filters(path, query, given) : null, tools?.(page),
      pagedTable(title, columns, page, { path, query, file, total: total(), keyOf, nothing: typeof nothing === "function" ? nothing(page) : nothing })],
    ...others,
  };
}
