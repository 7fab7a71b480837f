import json

from examples.demo.pictures import DIGESTS, PICTURES, TAKEN


def test_no_picture_is_older_than_its_view() -> None:
    taken = json.loads(DIGESTS.read_text())
    assert taken == {picture.name: picture.digest for picture in TAKEN}, "run `make screenshots`"


def test_each_picture_is_there_in_light_and_in_dark() -> None:
    wanted = {picture.path(scheme) for picture in TAKEN for scheme in ("light", "dark")}
    assert set(PICTURES.glob("*.png")) == wanted
