from bench.systems import Work


def test_a_third_of_the_work_fails_once() -> None:
    work = Work("run", 9, 3, 1.0)
    assert list(work.calls().values()).count("/fail/1") == 3
    assert work.expected_tries() == 12
    assert Work("run", 9, 0, 1.0).expected_tries() == 9
