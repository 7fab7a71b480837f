// Azurite has indexes of tables and queues, and hardly uses them: for each query of a table it tries all its rows, and
// each read of a queue sorts all messages of all queues by each index, twice. So each request takes longer the more is
// stored, other than on Azure. Loaded before Azurite, this lets it use them.
"use strict";
const { createRequire } = require("node:module");
const { realpathSync } = require("node:fs");

const ofAzurite = createRequire(realpathSync(process.argv[1]));
const parse = ofAzurite("./table/persistence/QueryInterpreter/QueryParser").default;
const generator = ofAzurite("./table/persistence/LokiTableStoreQueryGenerator").default;
const { Collection, Resultset } = ofAzurite("lokijs");

// Where a filter names a partition, the rows of that are tried.
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

// Only the first condition of a query uses an index. Azurite begins with the one that most documents meet: the row's key,
// which is one sequence of numbers in each history, or the account.
const narrowest = ["messageId", "PartitionKey", "queueName"];
const found = Resultset.prototype.find;
Resultset.prototype.find = function (query, firstOnly) {
  const first = query && narrowest.find((name) => name in query);
  return found.call(this, first ? { [first]: query[first], ...query } : query, firstOnly);
};

// For a list of documents the indexes are made anew, for one they are changed: for few, or none, that is quicker.
const { removeBatch, update } = Collection.prototype;
Collection.prototype.removeBatch = function (documents) {
  if (documents.length > 0) removeBatch.call(this, documents);
};
Collection.prototype.update = function (documents) {
  if (!Array.isArray(documents)) return update.call(this, documents);
  for (const document of documents) update.call(this, document);
};
