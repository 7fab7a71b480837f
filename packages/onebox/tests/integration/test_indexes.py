"""How Azurite uses its indexes, as `onebox` starts it."""

import json
import subprocess
from typing import Any

import pytest

from onebox.storage.installation import BUNDLED, INDEXES, find_node

TRIED = """
const ofAzurite = require("node:module").createRequire(process.argv[1]);
const generator = ofAzurite("./table/persistence/LokiTableStoreQueryGenerator").default;
const Loki = ofAzurite("lokijs");
const rows = new Loki("rows").addCollection("rows", { indices: ["PartitionKey", "RowKey"] });
for (let row = 0; row < 20; row++) {
  rows.insert({ PartitionKey: `op-${row >> 1}`, RowKey: `${row & 1}`, properties: { amount: row } });
}
const matches = generator.generateQueryForPersistenceLayer({ filter: process.argv[2] }, {});
let tried = 0;
const found = rows.chain().where(matches).data();
const all = rows.data.filter(matches);
for (const row of rows.data) {
  Object.defineProperty(row, "properties", { get: () => (tried++, { amount: 1 }) });
}
rows.chain().where(matches).data();
const names = (list) => list.map((row) => row.PartitionKey + "/" + row.RowKey).sort();
console.log(JSON.stringify({ found: names(found), all: names(all), tried }));
"""


SORTED = """
const Loki = require("node:module").createRequire(process.argv[1])("lokijs");
const indices = ["queueName", "timeNextVisible"];
const messages = new Loki("messages").addCollection("messages", { indices });
for (let each = 0; each < 20; each++) messages.insert({ queueName: `q-${each % 2}`, timeNextVisible: each });
let sorted = 0;
const ensureIndex = Loki.Collection.prototype.ensureIndex;
Loki.Collection.prototype.ensureIndex = function (name, force) {
  sorted += force || this.binaryIndices[name].dirty ? 1 : 0;
  return ensureIndex.call(this, name, force);
};
const due = (until) => messages.chain().find({ queueName: "q-1", timeNextVisible: { $lte: until } }).data();
messages.remove(due(-1));
const taken = due(6);
for (const each of taken) each.timeNextVisible += 100;
messages.update(taken);
const left = due(99).map((each) => each.timeNextVisible).sort((one, other) => one - other);
messages.remove(due(8)[0]);
const broken = messages.checkAllIndexes();
console.log(JSON.stringify({ taken: taken.length, left, kept: messages.count(), sorted, broken }));
"""


FOUND = """
const Loki = require("node:module").createRequire(process.argv[1])("lokijs");
const [indices, wide, narrow] = JSON.parse(process.argv[2]);
const rows = new Loki("rows").addCollection("rows", { indices });
for (let each = 0; each < 40; each++) rows.insert({ [wide]: each & 1, [narrow]: each >> 1, each });
let tried = 0;
for (const row of rows.data) {
  const value = row[wide];
  Object.defineProperty(row, wide, { get: () => (tried++, value) });
}
const found = rows.findOne({ [wide]: 1, [narrow]: 7 });
const none = rows.findOne({ [wide]: 2, [narrow]: 7 });
console.log(JSON.stringify({ found: found.each, none, tried }));
"""


def run(code: str, *arguments: str) -> Any:
    """Run code in a Node as Azurite's is."""
    command = [find_node(), "--require", str(INDEXES), "--eval", code, str(BUNDLED), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("query", "found", "tried"),
    [
        ("PartitionKey eq 'op-3' and amount ge 7", 1, 2),
        ("(amount ge 0) and (PartitionKey eq 'op-3')", 2, 2),
        ("amount lt 99 and (RowKey eq '1' and PartitionKey eq 'op-3')", 1, 2),
        ("amount eq 6 or PartitionKey eq 'op-3'", 2, 20),
        ("not (amount ge 0 and PartitionKey eq 'op-3')", 18, 20),
        ("amount ge 0 and PartitionKey gt 'op-8'", 2, 20),
        ("", 20, 0),
    ],
)
def test_a_filter_that_names_a_partition_tries_its_rows_alone(query: str, found: int, tried: int) -> None:
    answer = run(TRIED, query)
    assert answer["found"] == answer["all"]
    assert (len(answer["found"]), answer["tried"]) == (found, tried)


def test_a_message_that_is_taken_sorts_no_other_messages() -> None:
    answer = run(SORTED)
    assert answer == {"taken": 3, "left": list(range(7, 20, 2)), "kept": 19, "sorted": 0, "broken": []}


@pytest.mark.parametrize(
    "columns",
    [
        (("PartitionKey", "RowKey"), "RowKey", "PartitionKey"),
        (("accountName", "queueName"), "accountName", "queueName"),
        (("accountName", "messageId"), "accountName", "messageId"),
    ],
)
def test_a_row_is_looked_for_where_few_rows_are_tried(columns: tuple[tuple[str, str], str, str]) -> None:
    # The two rows of the narrow column, once for each of the two questions.
    assert run(FOUND, json.dumps(columns)) == {"found": 15, "none": None, "tried": 4}
