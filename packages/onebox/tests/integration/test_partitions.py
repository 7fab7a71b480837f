"""Which rows Azurite tries for a query, as `onebox` starts it."""

import json
import subprocess

import pytest

from onebox.storage.installation import BUNDLED, PARTITIONS, find_node

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
    command = [find_node(), "--require", str(PARTITIONS), "--eval", TRIED, str(BUNDLED), query]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    answer = json.loads(done.stdout)
    assert answer["found"] == answer["all"]
    assert (len(answer["found"]), answer["tried"]) == (found, tried)
