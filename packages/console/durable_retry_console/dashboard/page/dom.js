// Elements from data, changing a page in place, and the addresses of views. Text goes in as text: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element. `on` holds event handlers, `data` data attributes, `style` CSS properties; null and false are left out. */
export function h(tag, attributes = {}, ...children) {
  return build(document.createElement(tag), attributes, children);
}

/** Make an SVG element. */
export function s(tag, attributes = {}, ...children) {
  return build(document.createElementNS(SVG, tag), attributes, children);
}

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) set(node, name, value);
  node.append(...shown(children));
  return node;
}

const isEmpty = (value) => value === null || value === undefined || value === false;
const shown = (children) => children.flat(Infinity).filter((child) => !isEmpty(child)).map(readable);

// Text of strangers must not turn the direction of the sentence around it: such characters are shown as JSON escapes.
const TURNING = /[\u202a-\u202e\u2066-\u2069]/g;
const escaped = (letter) => `\\u${letter.charCodeAt(0).toString(16)}`;
const readable = (child) => (typeof child === "string" ? child.replace(TURNING, escaped) : child);

function set(node, name, value) {
  if (isEmpty(value)) return;
  if (name === "on") listen(node, value);
  else if (name === "data") for (const [key, text] of Object.entries(value)) node.dataset[key] = text;
  else if (name === "style") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
  else if (name === "value" && "value" in node) node.value = value;
  else node.setAttribute(name, value === true ? "" : value);
}

// A handler is looked up when its event comes, so that `morph` can give an old node the new node's handlers.
function listen(node, handlers) {
  node.handlers = handlers;
  for (const type of Object.keys(handlers)) node.addEventListener(type, handle);
}

function handle(event) {
  return this.handlers?.[event.type]?.call(this, event);
}

/** Show `children` in `parent`, changing what is there: focus, open details and typed text stay. */
export function show(parent, ...children) {
  const wanted = document.createDocumentFragment();
  wanted.append(...shown(children));
  morphChildren(parent, wanted);
}

function morphChildren(parent, wanted) {
  const keyed = new Map([...parent.children].filter((one) => one.dataset.key).map((one) => [one.dataset.key, one]));
  let current = parent.firstChild;
  for (const next of [...wanted.childNodes]) {
    const old = next.dataset?.key ? keyed.get(next.dataset.key) : matching(current, next);
    if (!old) {
      parent.insertBefore(next, current);
    } else {
      if (old === current) current = current.nextSibling;
      else parent.insertBefore(old, current);
      morph(old, next);
    }
  }
  while (current) {
    const following = current.nextSibling;
    current.remove();
    current = following;
  }
}

function matching(current, next) {
  const alike = current && current.nodeName === next.nodeName && !current.dataset?.key;
  return alike ? current : null;
}

function morph(old, next) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  if (old.nodeName !== next.nodeName) return void old.replaceWith(next);
  if (old.dataset.keep !== undefined) return;
  const isMoved = next.dataset.follow !== undefined && old.dataset.follow !== next.dataset.follow;
  morphAttributes(old, next);
  if (next.handlers) {
    for (const type of Object.keys(next.handlers)) old.addEventListener(type, handle);
    old.handlers = next.handlers;
  } else delete old.handlers;
  morphChildren(old, next);
  // A field that stands for a part of the address shows it after Back too; what a person types stays otherwise.
  if (isMoved) old.value = next.value;
}

function morphAttributes(old, next) {
  for (const { name, value } of [...next.attributes]) {
    if (old.getAttribute(name) === value) continue;
    if (name === "style") old.style.cssText = next.style.cssText; // As an attribute the page's policy forbids it.
    else old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    const isUsers = name === "open" && old.nodeName === "DETAILS";
    if (!next.hasAttribute(name) && !isUsers) old.removeAttribute(name);
  }
}

/** Say something to screen readers. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** Show a message for a few seconds, and say it. */
export function toast(text, kind = "good") {
  const note = h("div", { class: `toast ${kind}` }, text);
  document.getElementById("toasts").append(note);
  announce(text);
  setTimeout(() => note.remove(), kind === "bad" ? 12_000 : 6_000);
}

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
