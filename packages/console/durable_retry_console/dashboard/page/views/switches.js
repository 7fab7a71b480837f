// What one does by hand to a circuit, and to what waits for it.

import { doing } from "../acting.js";
import { segment } from "../api.js";
import { saidText } from "../format.js";
import { linkButton } from "../pieces.js";

const WHY = { name: "reason", label: "Why?", hint: "Kept in the audit trail." };
const FOR = { name: "for_seconds", label: "For how many seconds?", type: "number", min: 1, optional: true, hint: "Empty: until the next manual change." };
const DEADLINES = { name: "stops_deadline", label: "Deadlines of what waits for it", optional: true, choices: [["", "keep running"], ["true", "stop while it is open"]] };
const OPEN = { what: "open", label: "Hold open", kind: "danger", fields: [WHY, FOR, DEADLINES], words: "No attempt goes through until it is closed again. Operations wait for it meanwhile." };
export const CLOSE = { what: "close", label: "Close", kind: "quiet", fields: [WHY], words: "Attempts go through again, and waiting operations resume in turn." };
const DISABLE = { what: "disable", label: "Disable", kind: "quiet", fields: [WHY, FOR], words: "Every attempt goes through, however many fail." };
const RESET = { what: "reset", label: "Reset", kind: "quiet", fields: [WHY], words: "Closes it, ends a pause and clears its counts." };
export const END_PAUSE = { ...RESET, label: "End the pause", kind: "", words: "Attempts go through before the time that the dependency asked for. An operation that got such an answer itself still waits: Retry now sends it. The counts of the circuit start again at zero." };
export const SWITCHES = [OPEN, CLOSE, DISABLE, RESET];

const KEYS_STAY = "Circuits of limit keys stay as they are: each has its own switch.";
/** Those of a dependency whose limit keys have circuits of their own. */
export const SWITCHES_BESIDE_KEYS = SWITCHES.map((one) => ([CLOSE, RESET].includes(one) ? { ...one, words: `${one.words} ${KEYS_STAY}` } : one));

/** One attempt past the circuit, of an operation that waits for it. */
export const TRY = { what: "try", label: "Try once", action: "Send it", done: "Sent past the circuit, which stays as it is.", title: "Send one attempt past the circuit?",
  words: "The circuit does not count it and stays as it is. Close the circuit by hand when the attempt succeeds.", fields: [{ name: "reason", label: "Why?", hint: "Kept with the operation." }] };

/** A switch of the circuit of a dependency, or of one of its limit keys. */
export function turning(given, { dependency, limit_key: key }, reload) {
  const bodyOf = (typed) => ({ ...typed, limit_key: key });
  const done = ({ still_held: held }) => `${given.label}: requested.${held ? ` Calls still do not go: ${saidText(held)}.` : ""}`;
  return doing(`circuits/${segment(dependency)}`, reload, { ...given, bodyOf, title: `${given.label}: ${dependency}${key ? ` for ${key}` : ""}`, done });
}

/**
 * What helps operations that wait for the same; to wait no longer helps none that a circuit or a pause holds.
 * `circuit` is that of their dependency, null while it is not known.
 */
export function remedies({ dependency, status, first, limit_keys: keys }, circuit, reload) {
  const isOfKeys = circuit?.limit_keys && keys;
  const [key] = Object.keys(keys?.most ?? {});
  const one = { dependency, limit_key: isOfKeys ? key : undefined };
  const turn = (given) => (isOfKeys && keys.keys > 1 ? linkButton("Limit keys…", `circuits/${segment(dependency)}`, {}, "quiet") : turning(given, one, reload));
  if (status === "waiting_circuit") return [first ? doing(`operations/${segment(first.operation_id)}`, reload, { ...TRY, label: "Try one" }) : null, turn(CLOSE)];
  // Who was answered `Retry-After` itself keeps to it when somebody ends the pause.
  const isPauseOver = circuit && ![circuit, ...(circuit.limit_keys ?? [])].some((each) => each.throttled_until);
  if (status === "waiting_throttle" && !isPauseOver) return turn(END_PAUSE);
  if (status === "waiting_order") return linkButton("Blocked lanes", "lanes", { blocked: "true" }, "quiet");
  return linkButton("Retry now…", "bulk-actions/new", { action: "retry_now", status, dependency });
}
