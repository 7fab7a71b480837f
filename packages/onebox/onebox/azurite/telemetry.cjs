// Azurite loads Application Insights even when it sends no telemetry: two thirds of its start. Loaded before Azurite,
// this leaves that out.
"use strict";
const { createRequire } = require("node:module");
const { realpathSync } = require("node:fs");

const id = createRequire(realpathSync(process.argv[1])).resolve("applicationinsights");
require.cache[id] = { id, filename: id, loaded: true, exports: {}, children: [], paths: [] };
