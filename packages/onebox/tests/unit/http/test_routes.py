import pytest

from onebox.http.routes import RouteError, RouteTemplate, split_path


@pytest.mark.parametrize(
    ("template", "path", "values"),
    [
        ("orders", "/orders", {}),
        ("orders", "/Orders/", {}),
        ("", "/", {}),
        ("orders/{id}", "/orders/7", {"id": "7"}),
        ("orders/{id:int}", "/orders/-7", {"id": "-7"}),
        ("orders/{id:int:min(5)}", "/orders/7", {"id": "7"}),
        ("orders/{id:double}", "/orders/-7.5", {"id": "-7.5"}),
        ("orders/{id?}", "/orders", {}),
        ("orders/{id?}", "/orders/7", {"id": "7"}),
        ("orders/{id:int?}", "/orders/7", {"id": "7"}),
        ("orders/{id=all}", "/orders", {"id": "all"}),
        ("files/{*path}", "/files/a/b%20c.txt", {"path": "a/b c.txt"}),
        ("files/{*path}", "/files", {}),
        ("{**everything}", "/a/b", {"everything": "a/b"}),
        ("{name}.{extension}", "/report.pdf", {"name": "report", "extension": "pdf"}),
        ("v{version:int}/x", "/v2/x", {"version": "2"}),
        (
            "x/{id:guid}",
            "/x/7c9e6679-7425-40de-944b-e07fc1f90ae7",
            {"id": "7c9e6679-7425-40de-944b-e07fc1f90ae7"},
        ),
        (r"x/{code:regex(^\d{{3}}$)}", "/x/123", {"code": "123"}),
        ("x/{when:datetime}", "/x/2026-11-21", {"when": "2026-11-21"}),
        ("x/{name}", "/x/a%2Fb", {"name": "a/b"}),
    ],
)
def test_a_path_that_fits_gives_its_parameters(template: str, path: str, values: dict[str, str]) -> None:
    assert RouteTemplate.parse(template).match(split_path(path)) == values


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ("orders", "/order"),
        ("orders", "/orders/7"),
        ("orders/{id}", "/orders"),
        ("orders/{id:int}", "/orders/seven"),
        ("orders/{id:int}", "/orders/٣"),
        ("orders/{id:double}", "/orders/٣"),
        ("orders/{id:double}", "/orders/1_0"),
        ("orders/{id:int}", "/orders/2147483648"),
        ("orders/{id:range(1,3)}", "/orders/4"),
        ("orders/{id:length(3)}", "/orders/ab"),
        ("orders/{id:minlength(3)}", "/orders/ab"),
        ("orders/{id:maxlength(3)}", "/orders/abcd"),
        ("orders/{id:alpha}", "/orders/a1"),
        ("orders/{id:bool}", "/orders/yes"),
        ("files/{*path}", "/other"),
        (r"files/{*path:regex(^a)}", "/files"),
        (r"x/{code:regex(^\d{{3}}$)}", "/x/12"),
    ],
)
def test_a_path_that_does_not_fit_matches_nothing(template: str, path: str) -> None:
    assert RouteTemplate.parse(template).match(split_path(path)) is None


@pytest.mark.parametrize(
    "template", ["x/{id", "x/{id:number}", "{*rest}/x", "x/{id:min(a)}", "x/{id:regex([)}"]
)
def test_a_malformed_template_is_refused(template: str) -> None:
    with pytest.raises(RouteError):
        RouteTemplate.parse(template)
