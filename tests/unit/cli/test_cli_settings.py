"""`interlock settings`: every setting of the table, its value and its origin; no secret is shown."""

import pytest

from tests.support.builders.command_line import interlock, records
from worker.config.settings import NAMES, OWN_SECRETS, SETTINGS

SECRET = "xoxb-very-secret"


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def found(*arguments: str) -> dict[str, dict[str, object]]:
    return {each["name"]: each for each in records(interlock("settings", "--json", *arguments).stdout)}


def test_every_setting_is_shown_with_its_default() -> None:
    shown = found()

    assert list(shown) == list(NAMES)
    assert {each["origin"] for each in shown.values()} == {"default"}
    assert [shown[each.name]["value"] for each in SETTINGS] == [each.default or None for each in SETTINGS]


def test_a_value_says_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_TIMING", "fast")
    monkeypatch.setenv("INTERLOCK_SERVICE", "")  # as shells leave it: unset
    monkeypatch.setenv("INTERLOCK_INBOX", "inbox/rules.yaml")
    monkeypatch.setenv("INTERLOCK_ALERTS", "channel: '#data'")

    shown = found("--store", "sqlite:///other.db")

    values = {name: (each["value"], each["origin"]) for name, each in shown.items() if each["isSet"]}
    assert values == {
        "INTERLOCK_STORE": ("sqlite:///other.db", "option"),
        "INTERLOCK_TIMING": ("fast", "environment"),
        "INTERLOCK_INBOX": ("inbox/rules.yaml", "file"),
        "INTERLOCK_ALERTS": ("channel: '#data'", "environment"),
    }
    assert shown["INTERLOCK_ALERTS"]["noEffect"] == "there is no INTERLOCK_SLACK_TOKEN"


@pytest.mark.parametrize("as_json", [False, True])
def test_no_secret_is_shown(as_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OWN_SECRETS:
        monkeypatch.setenv(name, f"https://me:{SECRET}@example.com/{SECRET}")
    monkeypatch.setenv("INTERLOCK_SLACK_API", f"https://me:{SECRET}@slack.test/")

    result = interlock("settings", *(["--json"] if as_json else []))

    assert result.exit_code == 0
    assert SECRET not in result.output
    assert "https://***@slack.test/" in result.stdout
    if not as_json:
        assert result.stdout.count("(hidden)") == len(OWN_SECRETS)


def test_a_value_that_cannot_be_used_is_an_error_beside_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_TIMING", "soon")
    monkeypatch.setenv("INTERLOCK_REPEAT_ALERTS", "often")

    result = interlock("settings")

    assert result.exit_code == 2
    assert "error: INTERLOCK_TIMING is 'soon'; use default or fast" in result.stderr
    assert "error: INTERLOCK_REPEAT_ALERTS is 'often'" in result.stderr
    assert all(name in result.stdout for name in NAMES)


def test_a_secret_that_cannot_be_used_stays_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_HEARTBEAT_URL", SECRET)

    result = interlock("settings")

    assert result.exit_code == 2
    assert "error: INTERLOCK_HEARTBEAT_URL is no address" in result.stderr
    assert SECRET not in result.output


def test_a_long_text_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_INBOX", "rules:\n" + "# a line\n" * 100)

    assert "… (907 characters)" in " ".join(interlock("settings").stdout.split())
    assert str(found()["INTERLOCK_INBOX"]["value"]).endswith("# a line\n")


def test_a_name_that_is_nearly_a_setting_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_TIMINGS", "fast")

    assert "INTERLOCK_TIMINGS is no setting; if INTERLOCK_TIMING is meant, rename it" in interlock("settings").stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"INTERLOCK_DUTIES": "relay"}, "warning: INTERLOCK_DUTIES is the earlier name of INTERLOCK_ROLES; rename it"),
        (
            {"INTERLOCK_DUTIES": "relay", "INTERLOCK_ROLES": "alerts"},
            "its earlier name, is 'relay'; unset INTERLOCK_DUTIES",
        ),
    ],
)
def test_the_earlier_name_of_a_setting_is_used_and_reported(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], said: str
) -> None:
    for name, text in given.items():
        monkeypatch.setenv(name, text)

    result = interlock("settings")

    assert said in " ".join(result.output.split())
    shown = next(line.split() for line in result.stdout.splitlines() if line.startswith("INTERLOCK_ROLES"))
    assert shown == ["INTERLOCK_ROLES", given.get("INTERLOCK_ROLES", "relay"), "environment"]


@pytest.mark.parametrize("variable", ["INTERLOCK_DUTIES", "INTERLOCK_ROLES"])
def test_a_wrong_value_is_reported_under_the_name_that_is_set(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "enigne")

    result = interlock("settings")

    assert f"{variable} names 'enigne'" in " ".join(result.output.split())
