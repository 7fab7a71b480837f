from durable_retry.engine.dead_letters.record import failure_group


def group(error: str | None, status_code: int | None = 400, dependency: str | None = "payments") -> str:
    return failure_group(
        dependency=dependency,
        category="malformed",
        reason="RejectedByDependency",
        status_code=status_code,
        error=error,
    )


def test_ids_and_numbers_do_not_make_a_new_group() -> None:
    first = group("order 42 (7f1c9a52-3c1f-4f7e-9a52-3c1f4f7e9a52) at 10.0.0.1:80 by usr_8ab7c9d0e1f2")
    second = group("order 7 (00000000-0000-0000-0000-000000000000) at 10.0.0.22:8080 by usr_1bb7c9d0e1f3")
    assert first == second


def test_different_causes_make_different_groups() -> None:
    groups = {
        group("no amount"),
        group("no currency"),
        group(None),
        group("no amount", 422),
        group("no amount", None),
    }
    assert len(groups) == 5
    assert group("x", dependency=None) != group("x")


def test_a_group_is_stable() -> None:
    assert group("no amount") == "g-d390a7bd9ffd11fb"
