"""What Microsoft's public samples of Durable Functions for Python show, in code of our own.

Sources, seen in November 2026: `azure-functions-durable/samples/` of microsoft/durabletask-python
(function-chaining, fan-out-fan-in, human-interaction, durable-entities), and
`samples/durable-functions/python/` of Azure-Samples/Durable-Task-Scheduler (monitoring,
eternal-orchestrations, async-http-api, hello-cities, work-item-filtering, large-payload). Left out are those
that need services of others: agent-directed-workflows, ai-agent-travel-planner, pdf-summarizer.
"""

import azure.durable_functions as df
import azure.functions as func
from current_style import blueprint as current_style  # type: ignore[import-not-found] # found beside this file
from first_style import blueprint as first_style  # type: ignore[import-not-found] # found beside this file

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)
app.register_functions(current_style)
app.register_functions(first_style)
