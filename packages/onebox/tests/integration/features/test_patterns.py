from datetime import UTC, datetime, timedelta

from tests.support.onebox.process import OneboxProcess


def test_the_sdk_retries_an_activity_until_it_succeeds(features: OneboxProcess) -> None:
    features.start_orchestration("retried", "retried", {"key": "retried", "failures": 2, "attempts": 5})
    assert features.until("retried", "Completed")["output"] == 3


def test_the_sdk_gives_up_after_the_last_attempt(features: OneboxProcess) -> None:
    features.start_orchestration("retried", "hopeless", {"key": "hopeless", "failures": 9, "attempts": 2})
    assert "run 2" in features.until("hopeless", "Failed")["output"]
    assert features.client.get("/api/runs/hopeless").text == "2"


def test_a_rewind_repeats_what_failed_in_the_child_and_nothing_else(features: OneboxProcess) -> None:
    features.start_orchestration("parent", "rewound", {"key": "rewound", "failures": 1})
    features.until("rewound", "Failed")
    assert features.manage("rewound", "rewind", reason="repaired").status_code == 202
    own, child, other = features.until("rewound", "Completed")["output"]
    assert (own, child["counted"], other["counted"]) == (1, 2, 1)
    assert child["parent"] == "rewound"
    assert features.client.get("/api/runs/rewound-own").text == "1"
    assert features.client.get("/api/runs/rewound-other").text == "1"
    assert features.manage("rewound", "rewind").status_code == 412, "it has not failed any more"


def test_events_that_come_before_anybody_waits_are_kept(features: OneboxProcess) -> None:
    features.start_orchestration("two_events", "early", 0.3)
    features.raise_event("early", "first", 1)  # names are compared without regard to case
    features.raise_event("early", "SECOND", 2)
    assert features.until("early", "Completed")["output"] == [1, 2]


def test_continue_as_new_carries_the_events_that_nobody_took(features: OneboxProcess) -> None:
    features.start_orchestration("collector", "collector", [])
    for number in range(5):
        features.raise_event("collector", "number", number)
    assert features.until("collector", "Completed")["output"] == [0, 1, 2, 3, 4]


def test_an_instance_sends_an_event_to_another_that_races_against_a_timer(features: OneboxProcess) -> None:
    features.start_orchestration("race", "raced", 60)
    features.start_orchestration("sends", "sender", "raced")
    assert features.until("raced", "Completed")["output"] == "from sender"
    features.start_orchestration("race", "late", 0.05)
    assert features.until("late", "Completed")["output"] == "too late"


def test_versions_come_from_the_start_from_host_json_and_from_the_call(features: OneboxProcess) -> None:
    features.start_orchestration("versioned", "given", None, version="1.1")
    assert features.until("given", "Completed")["output"] == ["1.1", "2.0", "1.5"]
    features.start_orchestration("versioned", "default", None)
    assert features.until("default", "Completed")["output"] == ["2.0", "2.0", "1.5"]


def test_an_instance_starts_at_its_time_and_keeps_its_tags(features: OneboxProcess) -> None:
    began = datetime.now(UTC)
    features.start_orchestration("stamps", "delayed", "x", delay="0.4", tag="red")
    assert features.instance("delayed")["runtimeStatus"] == "Pending"
    output = features.until("delayed", "Completed")["output"]
    assert datetime.now(UTC) - began >= timedelta(seconds=0.4)
    assert output["given"] == "x"
    assert output["ordered"]
    assert len(set(output["ids"])) == 2


def test_a_suspended_instance_goes_on_once_it_is_resumed(features: OneboxProcess) -> None:
    features.start_orchestration("race", "suspended", 60)
    assert features.manage("suspended", "suspend", reason="a break").status_code == 202
    features.until("suspended", "Suspended")
    features.raise_event("suspended", "approval", "heard")
    assert features.instance("suspended")["runtimeStatus"] == "Suspended"
    assert features.manage("suspended", "resume", reason="go on").status_code == 202
    assert features.until("suspended", "Completed")["output"] == "heard"


def test_a_restart_takes_the_same_input_and_the_id_that_is_asked_for(features: OneboxProcess) -> None:
    features.start_orchestration("stamps", "again", "same")
    features.until("again", "Completed")
    fresh = features.manage("again", "restart", restartWithNewInstanceId="true").json()["id"]
    assert fresh != "again"
    assert features.until(fresh, "Completed")["output"]["given"] == "same"
    assert features.manage("again", "restart", restartWithNewInstanceId="false").json()["id"] == "again"
    assert features.until("again", "Completed")["output"]["given"] == "same"


def test_a_running_id_cannot_be_started_again_and_an_ended_one_can(features: OneboxProcess) -> None:
    features.start_orchestration("race", "taken", 60)
    path = "/runtime/webhooks/durabletask/orchestrators/race/taken"
    assert features.client.post(path, json=0.01).status_code == 409
    assert features.manage("taken", "terminate", reason="enough").status_code == 202
    features.until("taken", "Terminated")
    assert features.client.post(path, json=0.01).status_code == 202
    assert features.until("taken", "Completed")["output"] == "too late"
