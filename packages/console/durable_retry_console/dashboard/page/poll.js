// Asking again and again: less often while nothing changes or it fails, not while hidden.

import { get, changes } from "./api.js";

const SLOWER = 1.5; // After each answer that says nothing new, up to the pace below.
const QUIET_MS = 15_000;
const LONGEST_MS = 60_000;
const SHARE = 2; // A task that takes a second is asked for every 2 seconds at most; the API bounds what its answers cost.

/** Runs `task(signal)` now and then until `stop()`. */
export class Poller {
  #timer = null;
  #abort = new AbortController();
  #failures = 0;
  #unchanged = 0;
  #ended = -Infinity;
  #running = false;
  #stopped = false;

  constructor(task, seconds) {
    this.task = task;
    this.interval = seconds * 1000;
    this.seen = () => !document.hidden && this.soon();
    this.due = () => this.#runSooner();
    document.addEventListener("visibilitychange", this.seen);
    document.addEventListener("due", this.due);
    this.soon();
  }

  /** Run as soon as possible, and at the first pace again. */
  soon() {
    this.#after(0);
  }

  /** Run again at the first interval: an instant on the page has come, so something is about to change. */
  #runSooner() {
    this.#after(Math.max(0, this.#ended + this.interval - performance.now()));
  }

  #after(pause) {
    this.#unchanged = 0;
    clearTimeout(this.#timer);
    if (!this.#running && !this.#stopped) this.#timer = setTimeout(() => this.#run(), pause);
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#abort.abort();
    document.removeEventListener("visibilitychange", this.seen);
    document.removeEventListener("due", this.due);
  }

  async #run() {
    if (document.hidden) return; // `seen` takes it up again.
    this.#running = true;
    const began = performance.now();
    const before = changes.count;
    const succeeded = await this.#try();
    this.#running = false;
    this.#ended = performance.now();
    this.#failures = succeeded ? 0 : this.#failures + 1;
    this.#unchanged = changes.count === before ? this.#unchanged + 1 : 0;
    if (!this.#stopped) this.#timer = setTimeout(() => this.#run(), this.#pause(this.#ended - began));
  }

  async #try() {
    try {
      return (await this.task(this.#abort.signal)) !== false;
    } catch (error) {
      if (!this.#stopped) console.error(error);
      return false;
    }
  }

  #pause(took) {
    const pace = Math.max(this.interval, Math.min(QUIET_MS, this.interval * SLOWER ** this.#unchanged));
    if (this.#failures === 0) return Math.min(LONGEST_MS, Math.max(pace, took * SHARE));
    const backoff = Math.min(LONGEST_MS, this.interval * 2 ** Math.min(this.#failures, 6));
    return backoff * (0.75 + Math.random() / 2);
  }
}

/** An answer that may take long: asked for at its own pace, while the rest of a view goes on without it. */
export class Paced {
  #running = false;
  #due = 0;

  constructor(task, seconds) {
    this.task = task;
    this.interval = seconds * 1000;
    this.value = null; // The latest answer; `{error}` when there was none; null before the first.
  }

  /** The latest answer that was one, or null. */
  get known() {
    return this.value?.error ? null : this.value;
  }

  /** Ask if it is time to, and call `then()` with the answer in place. */
  async ask(signal, then) {
    if (this.#running || performance.now() < this.#due) return;
    this.#running = true;
    const began = performance.now();
    try {
      this.value = await this.task(signal);
    } catch (error) {
      if (signal.aborted) return;
      this.value = this.value?.error || !this.value || error.status !== 0 ? { error } : this.value;
    } finally {
      this.#running = false;
      const now = performance.now();
      this.#due = now + Math.min(LONGEST_MS, Math.max(this.interval, (now - began) * SHARE));
    }
    if (!signal.aborted) then();
  }
}

// Operations counted by the API: what the overview and the circuits show. The API looks at a bounded number.

/** Time windows as [minutes, words]. */
export const WINDOWS = [[15, "Last 15 minutes"], [60, "Last hour"], [360, "Last 6 hours"], [1440, "Last 24 hours"], [10080, "Last 7 days"]];

/** How often the counts are asked for, at most. */
export const COUNT_SECONDS = 5;

/** Operations of the last minutes by state, time and dependency; and all that have not ended. */
export const countedOperations = (minutes, signal) => get("operations/summary", { window_seconds: minutes * 60 }, signal);

/** Waiting operations of `unfinished.by_status`, or of one dependency. */
export const waitingIn = (counts) => (counts ? counts.waiting_retry + counts.waiting_throttle + counts.waiting_circuit + counts.waiting_order : 0);

