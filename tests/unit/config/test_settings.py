"""Which store a command uses, and what a wrong one is told."""

from datetime import timedelta

import pytest

from consumers.streams.settle import OnFailure
from worker.config import settings as settings_module
from worker.config.environment import Setting
from worker.config.lease_roles import TABLE_ROLES as BY_TABLE
from worker.config.roles import Role
from worker.config.setting_values import FAILURE_POLICIES, FOLLOWED
from worker.config.settings import (
    BUS,
    CHANGES,
    HEARTBEAT_URL,
    HTTP_ALLOW,
    JOB_ENVIRONMENT,
    METRICS,
    NAMES,
    ON_FAILURE,
    ON_LOSS,
    OTLP_ENDPOINT,
    OTLP_HEADERS,
    OTLP_METRICS_ENDPOINT,
    OTLP_METRICS_HEADERS,
    OTLP_TRACES_ENDPOINT,
    OTLP_TRACES_HEADERS,
    OWN_SECRETS,
    PAGERDUTY_KEY,
    POLLS,
    REPEAT_ALERTS,
    ROLES,
    SETTINGS,
    SLACK_CHANNEL,
    SLACK_TOKEN,
    TARGET_RATES,
    TEAMS_URL,
    TIMING,
    WEB_PROXY_SECRET,
    WEB_SESSION_KEY,
    WEB_TOKENS,
    WEBHOOK_SECRET,
    WEBHOOK_URL,
    ReadingSettings,
    Settings,
    mistyped,
    read_settings,
    renamed,
    without_effect,
)
from worker.config.store_setting import DEFAULT_STORE, STORE
from worker.core.errors import ConfigError
from worker.core.membership.liveness import DEFAULT_TIMING, FAST_TIMING
from worker.core.model.pipeline import JobType
from worker.targets.rates import DEFAULT_RATES, ActionRate, Rate, with_own


def test_without_settings_the_store_is_a_file_in_the_current_directory() -> None:
    assert read_settings({}).store == DEFAULT_STORE == "sqlite:///interlock.db"


def test_the_environment_names_the_store() -> None:
    assert read_settings({STORE: "dynamodb://interlock"}).store == "dynamodb://interlock"


def test_an_empty_variable_counts_as_unset() -> None:
    assert read_settings({STORE: ""}).store == DEFAULT_STORE


def test_the_command_line_wins_over_the_environment() -> None:
    assert read_settings({STORE: "dynamodb://interlock"}, store="sqlite:///a.db").store == "sqlite:///a.db"


@pytest.mark.parametrize("url", ["interlock.db", "postgres://x", "sqlite://interlock.db", "dynamodb://"])
def test_a_wrong_url_is_refused_with_what_is_accepted(url: str) -> None:
    with pytest.raises(ConfigError, match=r"sqlite:///interlock\.db"):
        read_settings({STORE: url})


def test_how_soon_a_dead_worker_is_noticed_is_chosen_by_name() -> None:
    assert read_settings({}).timing == read_settings({TIMING: ""}).timing == DEFAULT_TIMING
    assert read_settings({TIMING: "fast"}).timing == FAST_TIMING
    with pytest.raises(ConfigError, match="INTERLOCK_TIMING is 'faster'; use default or fast"):
        read_settings({TIMING: "faster"})


def test_lists_are_separated_by_commas() -> None:
    settings = read_settings({JOB_ENVIRONMENT: "JAVA_HOME, SPARK_HOME,", HTTP_ALLOW: "10.0.0.0/8,localhost"})

    assert settings.job_environment == ("JAVA_HOME", "SPARK_HOME")
    assert settings.http_allow == ("10.0.0.0/8", "localhost")
    assert read_settings({}).job_environment == ()


def test_a_worker_without_a_word_does_everything() -> None:
    assert read_settings({}).roles == read_settings({ROLES: ""}).roles == frozenset(Role)
    assert read_settings({ROLES: "alerts, events"}).roles == {Role.ALERTS, Role.EVENTS}


def test_a_role_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match="'enigne'; a role is one of engine, scheduler"):
        read_settings({ROLES: "enigne"})


def test_the_earlier_name_of_the_roles_is_still_read_and_named_as_such() -> None:
    earlier = {"INTERLOCK_DUTIES": "alerts,events"}

    assert read_settings(earlier).roles == {Role.ALERTS, Role.EVENTS}
    assert renamed(earlier) == {"INTERLOCK_DUTIES": ROLES}
    assert mistyped(earlier) == {}
    with pytest.raises(ConfigError, match="INTERLOCK_DUTIES names 'enigne'"):
        read_settings({"INTERLOCK_DUTIES": "enigne"})


def test_both_names_of_a_setting_may_say_the_same_and_nothing_else() -> None:
    same = {ROLES: "alerts,events", "INTERLOCK_DUTIES": "events, alerts"}

    assert read_settings(same).roles == {Role.ALERTS, Role.EVENTS}
    assert renamed(same) == {}
    with pytest.raises(
        ConfigError, match="INTERLOCK_ROLES is 'alerts' and INTERLOCK_DUTIES, its earlier name, is 'relay'"
    ):
        read_settings({ROLES: "alerts", "INTERLOCK_DUTIES": "relay"})


def test_who_schedules_must_be_able_to_start() -> None:
    with pytest.raises(ConfigError, match="scheduler without engine"):
        read_settings({ROLES: "scheduler,relay"})


def test_metrics_in_the_log_are_asked_for_by_name() -> None:
    assert read_settings({METRICS: "emf"}).telemetry.metrics == "emf"
    with pytest.raises(ConfigError, match="INTERLOCK_METRICS is 'statsd'"):
        read_settings({METRICS: "statsd"})


def test_alerts_are_repeated_only_if_that_is_asked_for() -> None:
    assert read_settings({}).alerts.repeat_alerts is None
    assert read_settings({REPEAT_ALERTS: "6h"}).alerts.repeat_alerts == timedelta(hours=6)
    assert read_settings({REPEAT_ALERTS: "1d"}).alerts.repeat_alerts == timedelta(days=1)


@pytest.mark.parametrize("text", ["often", "1s"])
def test_a_repeat_that_is_no_duration_or_too_short_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="at least 1m"):
        read_settings({REPEAT_ALERTS: text})


def test_a_rate_that_was_set_takes_the_place_of_the_default_and_leaves_the_others() -> None:
    rates = with_own(read_settings({TARGET_RATES: "glue=2, step-function=0.5"}).target_rates)

    glue = Rate(2, 4, starts=ActionRate(2, 4), stops=ActionRate(2, 4))
    functions = Rate(0.5, 1, 0.1, starts=ActionRate(7.5, 15), stops=ActionRate(1.25, 2))
    assert rates == {**DEFAULT_RATES, JobType.GLUE: glue, JobType.STEP_FUNCTION: functions}
    assert with_own(read_settings({}).target_rates) == DEFAULT_RATES


@pytest.mark.parametrize("given", ["glue=", "glue=fast", "glue=0", "glue=-1", "glue=nan", "glue=1e9", "s3=2"])
def test_a_rate_that_is_none_is_refused_with_what_is_accepted(given: str) -> None:
    with pytest.raises(ConfigError, match=r"INTERLOCK_TARGET_RATES has .*step-function.*such as glue=2"):
        read_settings({TARGET_RATES: given})


def test_changes_come_by_the_tables_own_streams_or_by_a_stream_of_kinesis() -> None:
    assert read_settings({}).aws.changes_stream == ""
    assert read_settings({CHANGES: "kinesis:interlock-changes"}).aws.changes_stream == "interlock-changes"


@pytest.mark.parametrize("text", ["interlock-changes", "kinesis:", "sqs:changes", "kinesis:arn:aws:kinesis:x"])
def test_another_way_for_changes_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(ConfigError, match="use kinesis:STREAM"):
        read_settings({CHANGES: text})


def test_policies_are_for_all_tables_or_for_each_and_the_last_word_counts() -> None:
    reading = read_settings({ON_FAILURE: "skip, control=block", ON_LOSS: "events=halt"}).reading

    assert reading.on_failure == {"control": "block", "joblog": "skip", "events": "skip"}
    assert reading.on_loss == {"events": "halt"}
    assert read_settings({}).reading == ReadingSettings()


def test_the_policies_that_can_be_chosen_are_those_there_are() -> None:
    assert set(FAILURE_POLICIES) == set(OnFailure)
    assert set(FOLLOWED) == set(BY_TABLE)


@pytest.mark.parametrize("name", [ON_FAILURE, ON_LOSS])
@pytest.mark.parametrize("text", ["stop", "control=", "orders=skip", "=halt", "skip,halt"])
def test_a_policy_that_is_none_is_refused_with_those_there_are(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name} has .*; use (park-key, skip or block|resync or halt), .*control"):
        read_settings({name: text})


def test_shards_at_rest_are_asked_more_rarely_only_if_that_is_asked_for() -> None:
    assert not read_settings({POLLS: "default"}).reading.is_eco
    assert read_settings({POLLS: "eco"}).reading.is_eco
    with pytest.raises(ConfigError, match="INTERLOCK_POLLS is 'slow'; use default or eco"):
        read_settings({POLLS: "slow"})


def test_what_is_secret_is_not_shown_with_the_settings() -> None:
    secrets = {
        SLACK_TOKEN: "xoxb-hidden-1",
        HEARTBEAT_URL: "https://beats.example/hidden-2",
        OTLP_ENDPOINT: "https://me:hidden-3@collector.example",
        OTLP_TRACES_HEADERS: "authorization=hidden-9",
        OTLP_METRICS_ENDPOINT: "https://collector.example/hidden-10",
        WEBHOOK_URL: "https://receiver.example/hidden-4",
        WEBHOOK_SECRET: "hidden-5",
        PAGERDUTY_KEY: "hidden-6 payments=hidden-7",
        TEAMS_URL: "https://teams.example?sig=hidden-8",
    }

    settings = read_settings(secrets)

    assert settings.alerts.heartbeat_url == secrets[HEARTBEAT_URL]
    assert "hidden" not in repr(settings)


def test_a_heartbeat_that_is_no_address_is_refused_without_being_shown() -> None:
    with pytest.raises(ConfigError, match="INTERLOCK_HEARTBEAT_URL is no address; begin it with https://") as refusal:
        read_settings({HEARTBEAT_URL: "beats.example/hidden"})

    assert "hidden" not in str(refusal.value)


def test_a_target_may_have_an_address_of_its_own_for_an_owner() -> None:
    alerts = read_settings({TEAMS_URL: "https://a.example?sig=1 payments=https://b.example?sig=2"}).alerts

    assert alerts.teams_urls == {"": "https://a.example?sig=1", "payments": "https://b.example?sig=2"}


@pytest.mark.parametrize("text", ["hidden.example/x", "payments=hidden", "https://hidden-1 https://hidden-2"])
def test_an_address_of_a_target_that_is_wrong_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ConfigError, match=r"INTERLOCK_TEAMS_URL (is no address|has two values)") as refusal:
        read_settings({TEAMS_URL: text})

    assert "hidden" not in str(refusal.value)


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_name_of_a_variable_is_that_of_a_setting() -> None:
    named = {value for name, value in vars(settings_module).items() if name.isupper() and isinstance(value, str)}
    variables = {value for value in named if value.startswith(("INTERLOCK_", "OTEL_"))} - {settings_module.PREFIX}

    assert sorted(NAMES) == sorted(variables)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_setting_is_described_in_one_sentence_and_its_default_can_be_written(setting: Setting) -> None:
    assert setting.description.endswith(".")
    assert len(setting.description) <= 110
    assert setting.used_by
    assert setting.needs in {"", *NAMES}
    assert setting.read({setting.name: setting.default}) == setting.read({}) == setting.value_in(Settings())


def test_the_workers_own_credentials_are_the_secret_settings() -> None:
    targets = {WEBHOOK_URL, WEBHOOK_SECRET, PAGERDUTY_KEY, TEAMS_URL}
    endpoints = {OTLP_ENDPOINT, OTLP_TRACES_ENDPOINT, OTLP_METRICS_ENDPOINT}
    telemetry = {*endpoints, OTLP_HEADERS, OTLP_TRACES_HEADERS, OTLP_METRICS_HEADERS}
    web = {WEB_TOKENS, WEB_PROXY_SECRET, WEB_SESSION_KEY}
    assert {SLACK_TOKEN, *targets, HEARTBEAT_URL, *telemetry, *web} == OWN_SECRETS


def test_a_setting_without_effect_is_found_with_the_reason() -> None:
    said = {BUS: "interlock", POLLS: "eco", SLACK_CHANNEL: "#alerts", ON_LOSS: "halt"}

    on_file = dict(without_effect(read_settings(said), is_aws=False))
    on_aws = dict(without_effect(read_settings(said), is_aws=True))

    assert on_file.keys() == {BUS, POLLS, SLACK_CHANNEL}
    assert on_aws == {SLACK_CHANNEL: f"there is no {SLACK_TOKEN}"}
    assert list(without_effect(read_settings({**said, SLACK_TOKEN: "xoxb-1"}), is_aws=True)) == []


def test_a_variable_that_is_nearly_a_setting_is_found_and_a_secret_is_not() -> None:
    assert mistyped({"INTERLOCK_SLACK_CHANEL": "#a", "INTERLOCK_WAREHOUSE_PASSWORD": "x", STORE: "y"}) == {
        "INTERLOCK_SLACK_CHANEL": SLACK_CHANNEL
    }
