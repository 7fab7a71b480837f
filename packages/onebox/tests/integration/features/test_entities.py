from scripts.processes import eventually
from tests.support.onebox.process import OneboxProcess


def deposit(features: OneboxProcess, key: str, amount: int) -> None:
    answer = features.client.post(f"/api/entities/account/{key}/deposit", json=amount)
    assert answer.status_code == 202
    eventually(lambda: features.entity("account", key) == amount, f"{key} holds {amount}")


def test_an_entity_signals_another_and_an_orchestration_signals_for_later(features: OneboxProcess) -> None:
    deposit(features, "dora", 5)
    features.start_orchestration("audits", "audits", {"source": "dora", "bank": "later"})
    assert features.until("audits", "Completed")["output"] == "audits-audit"
    assert features.until("audits-audit", "Completed")["output"]["given"] == "audit"
    eventually(lambda: features.entity("bank", "later") == 7, "the scheduled signal arrives")
    eventually(lambda: features.entity("bank", "total") is not None, "the account signals the bank")
