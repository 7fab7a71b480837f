// The API: requests with the key, problems as errors, and whether anybody answers at all.

import { learnClock } from "./format.js";

// This file is <prefix>/dashboard/api.js, and the API is what stands beside the dashboard.
const BASE = new URL("../", import.meta.url);
const KEY = "durable-retry-function-key";
const PATIENCE_MS = 30_000;

/** An answer that is not a success. `status` is 0 when there was none. */
export class ApiError extends Error {
  constructor(status, problem, message) {
    super(message);
    this.status = status;
    this.problem = problem;
  }

  /** Every mistake of an input, as lines. */
  get lines() {
    return (this.problem?.errors ?? []).map((error) => `${error.pointer}: ${error.detail}`);
  }
}

/** Calls `change` when the API comes, goes, or asks for a key. */
export const connection = Object.assign(new EventTarget(), { awaySince: null, lastAnswer: null, needsKey: false });

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set(text) {
    if (text) sessionStorage.setItem(KEY, text);
    else sessionStorage.removeItem(KEY);
    known.clear();
    seldom.clear();
    settle({ needsKey: false });
  },
};

function settle(change) {
  const hasChanged = Object.entries(change).some(([name, value]) => connection[name] !== value);
  Object.assign(connection, change);
  if (hasChanged) connection.dispatchEvent(new Event("change"));
}

/** How many answers said something new: a page that hears nothing new asks less often. */
export const changes = { count: 0 };

// Documents by address, with the tag that the API knows each version by. A 304 stands for the one in here.
const known = new Map();
const MOST_KNOWN = 40;

function remember(href, etag, document) {
  changes.count++;
  known.delete(href);
  if (etag) known.set(href, { etag, document });
  if (known.size > MOST_KNOWN) known.delete(known.keys().next().value);
}

/** GET a document that seldom changes: asked for once a minute at most. */
export async function getSeldom(path, signal = undefined) {
  const kept = seldom.get(path);
  if (kept && performance.now() < kept.until) return kept.document;
  const document = await get(path, {}, signal);
  seldom.set(path, { document, until: performance.now() + SELDOM_MS });
  return document;
}

const seldom = new Map();
const SELDOM_MS = 60_000;

/** GET a document. `query` may hold nulls, which are left out. */
export const get = (path, query = {}, signal = undefined) => send("GET", path, { query, signal });
export const post = (path, body = {}) => send("POST", path, { body });
export const remove = (path) => send("DELETE", path, {});

/** The whole address of a path, for use outside this page. */
export const addressOf = (path) => urlOf(path, {}).href;

/** Part of a path, safe for any id. */
export const segment = (text) => encodeURIComponent(text);

async function send(method, path, { query = {}, body, signal }) {
  const url = urlOf(path, query);
  const held = method === "GET" ? known.get(url.href) : undefined;
  const response = await answered(method, url, body, signal, held?.etag);
  learnClock(response.headers.get("date"));
  settle({ awaySince: null, lastAnswer: Date.now(), needsKey: response.status === 401 });
  if (response.status === 304) return held.document;
  const document = await read(response);
  if (method === "GET") remember(url.href, response.ok ? response.headers.get("etag") : null, document);
  else changes.count++;
  if (response.ok) return document;
  throw new ApiError(response.status, document, document?.detail ?? said(response.status));
}

function urlOf(path, query) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

async function answered(method, url, body, signal, etag) {
  const headers = { Accept: "application/json" };
  if (key.get()) headers["x-functions-key"] = key.get();
  if (etag) headers["If-None-Match"] = etag;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const patience = AbortSignal.timeout(PATIENCE_MS);
  const options = { method, headers, cache: "no-store", body: body === undefined ? undefined : JSON.stringify(body) };
  try {
    return await fetch(url, { ...options, signal: signal ? AbortSignal.any([signal, patience]) : patience });
  } catch (error) {
    if (signal?.aborted) throw error;
    settle({ awaySince: connection.awaySince ?? Date.now() });
    throw new ApiError(0, null, "The API does not answer.");
  }
}

async function read(response) {
  if (!/json/.test(response.headers.get("content-type") ?? "")) return null;
  try {
    return await response.json();
  } catch {
    throw new ApiError(response.status, null, "The API's answer was cut off.");
  }
}

function said(status) {
  if (status === 401 || status === 403) return "The API needs a function key.";
  if (status === 404) return "This app has no such route.";
  return `The API answered ${status}.`;
}
