// Azurite takes a message with a character that XML lacks, such as NUL, and cannot send it: a read hides its whole batch
// and ends with 500. Loaded before Azurite, this refuses the message, as Azure does (azure-sdk-for-net issue 11358).
"use strict";
const { createRequire } = require("node:module");
const { realpathSync } = require("node:fs");

const ofAzurite = createRequire(realpathSync(process.argv[1]));
const errors = ofAzurite("./queue/errors/StorageErrorFactory").default;
const { parseXMLwithEmpty } = ofAzurite("./queue/utils/utils");

const lacking = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/u; // XML 1.0, section 2.2

function check(handler, method) {
  const store = handler.prototype[method];
  handler.prototype[method] = async function (message, ...others) {
    const context = others.at(-1);
    // A text of nothing but spaces, among which Azurite counts two that XML lacks, is found later, in the body.
    const sent =
      message.messageText === undefined ? await parseXMLwithEmpty(context.request.getBody() || "") : message;
    if (Object.values(sent ?? {}).some((text) => lacking.test(text))) {
      throw errors.getInvalidXmlDocument(context.contextID);
    }
    return store.call(this, message, ...others);
  };
}

check(ofAzurite("./queue/handlers/MessagesHandler").default, "enqueue");
check(ofAzurite("./queue/handlers/MessageIdHandler").default, "update");
