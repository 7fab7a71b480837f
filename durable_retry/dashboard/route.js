// Addresses: everything that is shown has one, after the #, so that it can be shared.

/** Read the present address as `{path, query}`. */
export function readRoute() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { path, query: Object.fromEntries(new URLSearchParams(query)) };
}

/** The address of a path with a query; empty values are left out. */
export function link(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(given).toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

/** Go to a path. */
export function go(path, query = {}) {
  location.hash = link(path, query);
}
