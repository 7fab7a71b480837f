"""An orchestration that asks a model: each answer is paid once, and all callers keep its rate limit.

See docs/recipes.md. A function app registers it by
`app.orchestration_trigger(context_name="context")(research)`.
"""

from collections.abc import Generator
from typing import Any

from durabletask import task
from openai import AsyncOpenAI

import durable_retry
from durable_retry import Call


@durable_retry.operation("write-report", dependency="model")
async def write_report(topic: str, call: Call) -> str:
    """Write a report in two steps; one that was answered is not asked again."""
    outline = await call.step("outline", ask, f"Outline a report on {topic}.")
    report: str = await call.step("report", ask, f"Write the report with this outline: {outline}")
    return report


async def ask(prompt: str) -> str:
    async with AsyncOpenAI(max_retries=0) as model:  # the operation retries
        answer = await model.chat.completions.create(
            model="gpt-5", messages=[{"role": "user", "content": prompt}]
        )
    return answer.choices[0].message.content or ""


def research(context: task.OrchestrationContext, topic: str) -> Generator[task.Task[Any], Any, str]:
    """Have a report written; the key follows from the instance's id."""
    report: str = yield from durable_retry.call(context, write_report, topic)
    return report
