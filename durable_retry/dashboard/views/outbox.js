// Follow-up events: what is pending, sent or failed.

import { get, post, segment } from "../api.js";
import { h, toast } from "../dom.js";
import { ago, time, words } from "../format.js";
import { badge, button, filters, operationLink, pageQuery, pager, short, table } from "../pieces.js";

const COLUMNS = [
  { name: "State", cell: (one) => badge(one.state), text: (one) => one.state },
  { name: "Type", cell: (one) => one.type, text: (one) => one.type },
  { name: "To", cell: destination, text: destination },
  { name: "Operation", cell: (one) => operationLink(one.operation_id, short(one.operation_id)), text: (one) => one.operation_id },
  { name: "Created", cell: (one) => ago(one.created_at), text: (one) => one.created_at },
  { name: "Sent", cell: (one) => time(one.sent_at), text: (one) => one.sent_at },
  { name: "Detail", class: "wide", cell: (one) => h("span", { class: "clip", title: one.detail }, one.detail ?? "–"), text: (one) => one.detail },
];
const FILE = [...COLUMNS, { name: "event_id", text: (one) => one.event_id }];

function destination(one) {
  return one.queue ? `queue ${one.queue}` : `${one.dependency} ${one.path ?? ""}`;
}

export function outboxView({ path, query, reload }) {
  const resend = (one) => async () => {
    try {
      await post(`outbox/${segment(one.event_id)}/resend`);
      toast("Sending it again.");
    } catch (error) {
      toast(error.message, "bad");
    }
    reload();
  };
  const act = { name: "Action", cell: (one) => (one.state === "pending" ? "–" : button("Resend", resend(one), "quiet")) };
  return {
    title: "Outbox",
    load: (signal) => get("outbox", { ...pageQuery(query, []), state: query.state ?? "pending" }, signal),
    render: (page) => [
      filters(path, { state: "pending", ...query }, [{ name: "state", label: "State", required: true, choices: ["pending", "sent", "failed"].map((state) => [state, words(state)]) }]),
      table("Events", [...COLUMNS, act], page.items, { keyOf: (one) => one.event_id, empty: `No event is ${query.state ?? "pending"}.` }),
      pager(path, query, page, FILE, "outbox"),
    ],
  };
}
