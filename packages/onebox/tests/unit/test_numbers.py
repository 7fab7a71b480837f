import pytest

from onebox.numbers import decimal_number, plain_number

STRANGE = ["", "٣", "²", "1_0", " 1", "1 ", "nan", "inf", "0x1", "9" * 5_000]


@pytest.mark.parametrize("text", [*STRANGE, "-1", "+1", "1.0", "1e1"])
def test_a_plain_number_is_digits_alone(text: str) -> None:
    assert plain_number(text) is None
    assert plain_number("0012") == 12


@pytest.mark.parametrize("text", [*STRANGE, "1.", ".", "1.0.0", "1e999"])
def test_a_decimal_number_is_one_that_is_finite(text: str) -> None:
    assert decimal_number(text) is None
    assert [decimal_number(number) for number in ("5", "-.5", "+1.5e1")] == [5, -0.5, 15]
