from scripts.processes import eventually
from tests.support.onebox.process import OneboxProcess


def deposit(features: OneboxProcess, key: str, amount: int) -> None:
    answer = features.client.post(f"/api/entities/account/{key}/deposit", json=amount)
    assert answer.status_code == 202
    eventually(lambda: features.entity("account", key) == amount, f"{key} holds {amount}")


def test_locks_keep_transfers_apart_in_both_directions(features: OneboxProcess) -> None:
    deposit(features, "ada", 100)
    deposit(features, "bob", 100)
    orders = [("ada", "bob"), ("bob", "ada"), ("ada", "bob"), ("ada", "bob")]
    for number, (source, target) in enumerate(orders):
        order = {"source": source, "target": target, "amount": 60}
        features.start_orchestration("transfer", f"transfer-{number}", order)
    outcomes = [features.until(f"transfer-{each}", "Completed")["output"] for each in range(len(orders))]
    balances = features.entity("account", "ada"), features.entity("account", "bob")
    assert sum(balances) == 200
    moved = sum(
        60 if source == "bob" else -60
        for (source, _), outcome in zip(orders, outcomes, strict=True)
        if outcome == "moved"
    )
    assert balances[0] == 100 + moved
    assert min(balances) >= 0


def test_an_orchestration_that_fails_lets_go_of_its_locks(features: OneboxProcess) -> None:
    deposit(features, "cara", 10)
    features.start_orchestration("overdraw", "overdrawn", {"source": "cara"})
    assert "999990 short" in features.until("overdrawn", "Failed")["output"]
    features.start_orchestration("overdraw", "caught", {"source": "cara", "catch": True})
    assert "999990 short" in features.until("caught", "Completed")["output"]
    assert features.entity("account", "cara") == 10, "a failed operation changes nothing"


def test_an_entity_signals_another_and_an_orchestration_signals_for_later(features: OneboxProcess) -> None:
    deposit(features, "dora", 5)
    features.start_orchestration("audits", "audits", {"source": "dora", "bank": "later"})
    assert features.until("audits", "Completed")["output"] == "audits-audit"
    assert features.until("audits-audit", "Completed")["output"]["given"] == "audit"
    eventually(lambda: features.entity("bank", "later") == 7, "the scheduled signal arrives")
    eventually(lambda: features.entity("bank", "total") is not None, "the account signals the bank")


def test_an_entity_without_state_is_gone(features: OneboxProcess) -> None:
    features.client.post("/api/entities/bank/closing/record", json=1)
    eventually(lambda: features.entity("bank", "closing") == 1, "it exists")
    features.client.post("/api/entities/bank/closing/close")
    eventually(lambda: features.entity("bank", "closing") is None, "it is gone")
