import base64

from scripts.processes import eventually
from tests.support.onebox.process import OneboxProcess


def test_a_list_becomes_a_message_per_item_in_a_queue_named_by_the_route(onebox: OneboxProcess) -> None:
    answer = onebox.client.post("/api/pass/passed-on", json=["one", "two é"])
    assert (answer.status_code, answer.text) == (200, "passed")
    messages = onebox.raw_queue("passed-on").receive_messages(messages_per_page=10)
    bodies = [base64.b64decode(message.content).decode() for message in messages]
    assert sorted(bodies) == ["one", "two é"]


def test_a_message_passes_through_into_a_blob(onebox: OneboxProcess) -> None:
    sent = onebox.queue("to-blob").send_message("kept ✓")
    content = eventually(lambda: onebox.blob(f"passed/{sent.id}.txt"), "the blob is written")
    assert content == "kept ✓".encode()


def test_an_output_that_onebox_does_not_serve_fails_the_run_and_says_so(onebox: OneboxProcess) -> None:
    assert onebox.client.post("/api/unserved").status_code == 500
    onebox.until_logged("unserved, output out: onebox has no output of type 'signalR'")
