"""Routes of dependencies, their circuits and policies, and of the app itself."""

from http import HTTPStatus
from typing import Final

from engine.circuit.audit import Hand
from triggers.circuits import HandRequest
from triggers.openapi import dependency_answers as downstream
from triggers.openapi.common_parts import (
    ACCEPTED,
    AWAY,
    CONFLICT,
    INVALID,
    MISSING,
    OK,
    TOO_LARGE,
    page,
    shown,
)
from triggers.openapi.parts import Answer, Route
from triggers.policies import PolicyQuestion


def _hand(hand: Hand, summary: str) -> Route:
    return Route(
        function=f"{hand.value}_circuit",
        method="POST",
        path=f"/circuits/{{dependency}}/{hand.value}",
        tag="circuits",
        summary=summary,
        body=HandRequest,
        answers=(Answer(ACCEPTED, "It was told.", downstream.CircuitChange),),
        problems=(INVALID, MISSING, CONFLICT, TOO_LARGE, AWAY),
    )


DEPENDENCIES: Final = (
    Route(
        function="list_circuits",
        method="GET",
        path="/circuits",
        tag="circuits",
        summary="Show the circuit of every dependency",
        answers=page(downstream.CircuitPage),
        problems=(AWAY,),
    ),
    Route(
        function="get_circuit",
        method="GET",
        path="/circuits/{dependency}",
        tag="circuits",
        summary="Show the circuit of a dependency",
        answers=shown(downstream.CircuitDocument),
        problems=(MISSING, AWAY),
    ),
    _hand(Hand.OPEN, "Hold a circuit open: no attempt goes through"),
    _hand(Hand.CLOSE, "Close a circuit; what waits for it goes in its turn"),
    _hand(Hand.DISABLE, "Let everything through, whatever fails"),
    _hand(Hand.RESET, "Close a circuit and forget what it counted"),
    Route(
        function="list_dependencies",
        method="GET",
        path="/dependencies",
        tag="dependencies",
        summary="List every dependency with its resolved policy, secrets masked",
        answers=page(downstream.DependencyPage),
    ),
    Route(
        function="preview_policy",
        method="POST",
        path="/policies/preview",
        tag="dependencies",
        summary="Tell every wait of a policy and whether it fits the deadline",
        body=PolicyQuestion,
        answers=(Answer(OK, "The waits.", downstream.PolicyPreview),),
        problems=(INVALID, TOO_LARGE),
    ),
)

UNCHANGED: Final = Answer(HTTPStatus.NOT_MODIFIED, "The version that was named.", media_type="")

THE_APP: Final = (
    Route(
        function="get_health",
        method="GET",
        path="/health",
        tag="the app",
        summary="Tell whether the app can take operations over",
        answers=(
            Answer(OK, "It can.", downstream.HealthDocument),
            Answer(AWAY, "It cannot; the parts that fail say so.", downstream.HealthDocument),
        ),
        anonymous=True,
    ),
    Route(
        function="get_openapi",
        method="GET",
        path="/openapi.json",
        tag="the app",
        summary="This document",
        answers=(Answer(OK, "OpenAPI 3.1."),),
        anonymous=True,
    ),
    Route(
        function="get_dashboard",
        method="GET",
        path="/dashboard",
        tag="the app",
        summary="The dashboard, a page that reads this API",
        answers=(Answer(OK, "The page.", media_type="text/html"), UNCHANGED),
        anonymous=True,
    ),
    Route(
        function="get_dashboard_file",
        method="GET",
        path="/dashboard/{*path}",
        tag="the app",
        summary="A file of the dashboard",
        answers=(
            Answer(OK, "The file.", media_type="*/*"),
            UNCHANGED,
            Answer(HTTPStatus.PERMANENT_REDIRECT, "To the page.", headers=("Location",), media_type=""),
        ),
        problems=(MISSING,),
        anonymous=True,
    ),
)
