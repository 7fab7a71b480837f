"""What a worker process tells the shared circuit."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from engine.circuit.health import Verdict
from engine.sliding_window import (
    SlidingWindow,
    from_ms,
    optional_from_ms,
    optional_to_ms,
    to_ms,
)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """How a probe ended.

    Attributes:
        lease_id: the lease it ran under.
        epoch: the epoch it was permitted in.
        verdict: SILENT gives the lease back: the call never left, or was throttled.
    """

    lease_id: str
    epoch: int
    verdict: Verdict

    def to_json(self) -> list[Any]:
        """As a row."""
        return [self.lease_id, self.epoch, str(self.verdict)]

    @classmethod
    def from_json(cls, row: list[Any]) -> "ProbeResult":
        """Read `to_json`."""
        return cls(lease_id=row[0], epoch=row[1], verdict=Verdict(row[2]))


@dataclass(frozen=True, slots=True)
class Report:
    """One worker's news since its last report. Sending the same report twice counts once.

    Attributes:
        reporter: names the worker process, at most 32 characters are kept.
        sequence: 1 for its first report, one more for each.
        at: when it was made.
        epoch: the epoch in which the counted calls were permitted.
        window: the calls by the time they ended.
        trailing_failures: failures since the last success, those of this report only.
        refused: operations that began to wait for the circuit or for the end of a throttling pause.
        first_attempts: first attempts started.
        retries: retries started or promised by the retry budget.
        throttled_until: the dependency asked to be left alone until then; None = it did not.
        probes: probes that ended.
    """

    reporter: str
    sequence: int
    at: datetime
    epoch: int
    window: SlidingWindow
    trailing_failures: int = 0
    refused: int = 0
    first_attempts: int = 0
    retries: int = 0
    throttled_until: datetime | None = None
    probes: tuple[ProbeResult, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For a signal; instants in milliseconds since 1970."""
        return {
            "reporter": self.reporter,
            "sequence": self.sequence,
            "at": to_ms(self.at),
            "epoch": self.epoch,
            "window": self.window.to_json(),
            "trailing_failures": self.trailing_failures,
            "refused": self.refused,
            "first_attempts": self.first_attempts,
            "retries": self.retries,
            "throttled_until": optional_to_ms(self.throttled_until),
            "probes": [probe.to_json() for probe in self.probes],
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Report":
        """Read `to_json`.

        Raises:
            KeyError: if something is missing.
        """
        return cls(
            reporter=document["reporter"],
            sequence=document["sequence"],
            at=from_ms(document["at"]),
            epoch=document["epoch"],
            window=SlidingWindow.from_json(document["window"]),
            trailing_failures=document["trailing_failures"],
            refused=document["refused"],
            first_attempts=document["first_attempts"],
            retries=document["retries"],
            throttled_until=optional_from_ms(document["throttled_until"]),
            probes=tuple(ProbeResult.from_json(row) for row in document["probes"]),
        )
