// Operations counted by the API: what the overview and the circuits show. The API looks at a bounded number.

import { get } from "./api.js";

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
