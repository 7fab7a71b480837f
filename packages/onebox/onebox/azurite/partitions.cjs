// Azure Storage looks the rows of a query up by their partition. Azurite tries every row of the table, so that each
// query takes longer the more is stored. Loaded before Azurite, this tries the rows of the partition alone where a
// filter names one.
"use strict";
const { createRequire } = require("node:module");
const { realpathSync } = require("node:fs");

const ofAzurite = createRequire(realpathSync(process.argv[1]));
const parse = ofAzurite("./table/persistence/QueryInterpreter/QueryParser").default;
const generator = ofAzurite("./table/persistence/LokiTableStoreQueryGenerator").default;
const { Resultset } = ofAzurite("lokijs");

const partitions = new WeakMap(); // by the functions that are made of filters

function partitionIn(node) {
  if (node.name === "and") return partitionIn(node.left) ?? partitionIn(node.right);
  const isPartition = node.name === "eq" && node.left.identifier === "PartitionKey";
  return isPartition && node.right.name === "constant" ? node.right.value : undefined;
}

const made = generator.generateQueryEntityWhereFunction;
generator.generateQueryEntityWhereFunction = (filter) => {
  const matches = made(filter);
  const partition = filter ? partitionIn(parse(filter)) : undefined;
  if (partition !== undefined) partitions.set(matches, partition);
  return matches;
};

const tried = Resultset.prototype.where;
Resultset.prototype.where = function (matches) {
  const partition = partitions.get(matches);
  return tried.call(partition === undefined ? this : this.find({ PartitionKey: partition }), matches);
};
