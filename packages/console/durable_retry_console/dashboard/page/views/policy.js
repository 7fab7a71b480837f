// What a retry policy would do: every wait, and whether it fits the deadline.

import { getSeldom, post } from "../api.js";
import { h, s } from "../dom.js";
import { coarse, duration, number } from "../format.js";
import { filters } from "../lists.js";
import { card, empty, facts, figure, notice } from "../pieces.js";

const NUMBERS = [["max_attempts", "Most attempts"], ["initial_seconds", "First wait (s)"], ["factor", "Factor"], ["max_seconds", "Longest wait (s)"]];
// With the names of their schemas in the API's document, which lists the words to choose from.
const CHOICES = [["preset", "Preset", "PresetName"], ["strategy", "Strategy", "Strategy"], ["jitter", "Jitter", "Jitter"]];
const SCHEDULE = "schedule_seconds";

const fields = (schemas) => [
  ...CHOICES.map(([name, label, schema]) => ({ name, label, choices: schemas[schema].enum.map((value) => [value, value]), unset: "as configured" })),
  { name: SCHEDULE, label: "Waits of a schedule (s)" },
  ...[...NUMBERS, ["deadline_seconds", "Deadline (s)"]].map(([name, label]) => ({ name, label, type: "number" })),
];

export function policyView({ path, query }) {
  return {
    title: "Policy",
    seconds: 60,
    load: async (signal) => {
      const [dependencies, { components }] = await Promise.all([getSeldom("dependencies", signal), getSeldom("openapi.json", signal)]);
      return { dependencies, schemas: components.schemas, preview: await ask(query, dependencies.items[0]?.name) };
    },
    render: ({ dependencies, schemas, preview }) => [form(path, query, dependencies.items, schemas), preview.error ? notice(preview.error) : answer(preview)],
  };
}

async function ask(query, first) {
  try {
    return await post("policies/preview", question(query, first));
  } catch (error) {
    if (error.status === 0) throw error;
    return { error };
  }
}

function question(query, first) {
  const retry = {};
  for (const [name] of NUMBERS) if (query[name]) retry[name] = Number(query[name]);
  for (const [name] of CHOICES) if (query[name]) retry[name] = query[name];
  if (query[SCHEDULE]) retry[SCHEDULE] = query[SCHEDULE].split(/[\s,]+/).filter(Boolean).map(Number);
  const body = query.dependency === "(none)" ? { retry: { preset: "standard", ...retry } } : { dependency: query.dependency ?? first };
  if (Object.keys(retry).length) body.retry = retry;
  if (query.deadline_seconds) body.deadline_seconds = Number(query.deadline_seconds);
  return body;
}

function form(path, query, dependencies, schemas) {
  const choices = [...dependencies.map(({ name }) => [name, name]), ["(none)", "none"]];
  return filters(path, query, [{ name: "dependency", label: "Dependency", choices, required: true }, ...fields(schemas)]);
}

function answer({ waits, waits_complete: isComplete, total, deadline_seconds: deadline, fits_deadline: fits, limits }) {
  return [
    h("div", { class: "figures", data: { key: "figures" } },
      figure(number(waits.length + 1), isComplete ? "attempts" : "attempts shown"),
      figure(coarse(total.expected_seconds), "waiting on average"),
      figure(coarse(total.most_seconds), "waiting at most"),
      figure(fits ? "Fits" : "Does not fit", deadline ? `the deadline of ${coarse(deadline)}` : "no deadline", { kind: fits ? "is-succeeded" : "is-dead_lettered" })),
    limits && (limits.at_once || limits.starts_per_second) ? card("Limits", facts([
      ["Attempts at once", limits.at_once === null ? "no limit" : number(limits.at_once)],
      ["Starts per second", limits.starts_per_second === null ? "no limit" : number(limits.starts_per_second)],
      ["When every attempt takes its whole time limit", `${number(limits.slowest_per_second)} a second`],
    ])) : null,
    card("Waits", waits.length ? chart(waits) : empty("One attempt, no wait.")),
  ];
}

function chart(waits) {
  const longest = Math.max(...waits.map((wait) => wait.most_seconds), 0.001);
  const part = (seconds) => (seconds / longest) * 1000;
  const bar = (wait) => s("svg", { viewBox: "0 0 1000 10", preserveAspectRatio: "none", class: "place tall", "aria-hidden": "true" },
    s("rect", { x: part(wait.least_seconds), y: 0, width: Math.max(3, part(wait.most_seconds - wait.least_seconds)), height: 10, class: "span is-waiting_retry" }),
    s("rect", { x: Math.min(997, part(wait.expected_seconds)), y: 0, width: 3, height: 10, class: "expected" }));
  const row = (wait) => h("li", { data: { key: String(wait.after_attempt) } },
    h("div", { class: "said" }, h("strong", {}, `After attempt ${wait.after_attempt}`), h("span", {}, duration(wait.expected_seconds)),
      h("span", { class: "dim" }, wait.least_seconds === wait.most_seconds ? "always" : `${duration(wait.least_seconds)} to ${duration(wait.most_seconds)}`)), bar(wait));
  return h("ol", { class: "waits" }, waits.map(row));
}
