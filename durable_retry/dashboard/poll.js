// Asking again and again: no sooner than wanted, never for long, less often when it fails, not while hidden.

import { get } from "./api.js";

const LONGEST_MS = 60_000;
const SHARE = 8; // A task that takes a second is asked for every 8 seconds at most.

/** Runs `task(signal)` now and then until `stop()`. */
export class Poller {
  #timer = null;
  #abort = new AbortController();
  #failures = 0;
  #running = false;
  #stopped = false;

  constructor(task, seconds) {
    this.task = task;
    this.interval = seconds * 1000;
    this.seen = () => !document.hidden && this.soon();
    document.addEventListener("visibilitychange", this.seen);
    this.soon();
  }

  /** Run as soon as possible. */
  soon() {
    clearTimeout(this.#timer);
    if (!this.#running && !this.#stopped) this.#timer = setTimeout(() => this.#run(), 0);
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#abort.abort();
    document.removeEventListener("visibilitychange", this.seen);
  }

  async #run() {
    if (document.hidden) return; // `seen` takes it up again.
    this.#running = true;
    const began = performance.now();
    const succeeded = await this.#try();
    this.#running = false;
    this.#failures = succeeded ? 0 : this.#failures + 1;
    if (!this.#stopped) this.#timer = setTimeout(() => this.#run(), this.#pause(performance.now() - began));
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
    if (this.#failures === 0) return Math.min(LONGEST_MS, Math.max(this.interval, took * SHARE));
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

/** Operations by state, time and dependency, accepted in the last minutes; and all that have not ended. */
export const countedOperations = (minutes, signal) => get("operations/summary", { window_seconds: minutes * 60 }, signal);

/** Waiting operations of `unfinished.by_status`, or of one dependency. */
export const waitingIn = (counts) => (counts ? counts.waiting_retry + counts.waiting_circuit : 0);

/** A number of things that were counted, with a plus when not all were looked at. */
export const atLeast = (text, isComplete) => (isComplete ? text : `${text}+`);
