"""Secrets in job configurations."""

import pytest

from worker.core.errors import Rejected
from worker.jobs.secrets import EnvironmentSecrets, Filling, JobSecrets, MissingSecret

SOURCE = EnvironmentSecrets(
    {"INTERLOCK_KEY": 'a"b', "INTERLOCK_LOOP": "${INTERLOCK_KEY}", "AWS_SECRET_ACCESS_KEY": "x"}
)


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("Bearer ${INTERLOCK_KEY}", 'Bearer a"b'),
        ("$INTERLOCK_KEY.", 'a"b.'),
        ("$${INTERLOCK_KEY} $$INTERLOCK_KEY", "${INTERLOCK_KEY} $INTERLOCK_KEY"),
        ("costs 5$ and ${DATE}", "costs 5$ and ${DATE}"),
        ("${INTERLOCK_LOOP}", "${INTERLOCK_KEY}"),
        ("${AWS_SECRET_ACCESS_KEY}", "${AWS_SECRET_ACCESS_KEY}"),
    ],
)
async def test_a_text_is_filled_in_once(template: str, filled: str) -> None:
    assert await Filling(SOURCE).text(template) == filled


async def test_a_secret_inside_json_keeps_its_quotes() -> None:
    filling = Filling(SOURCE)

    assert await filling.values({"key": ["${INTERLOCK_KEY}", 1, None]}) == {"key": ['a"b', 1, None]}
    assert filling.secrets == {'a"b'}


async def test_a_secret_nobody_set_is_an_error_that_names_it() -> None:
    with pytest.raises(MissingSecret, match="INTERLOCK_TYPO"):
        await Filling(SOURCE).text("${INTERLOCK_TYPO}")


async def test_what_is_the_workers_own_is_given_to_no_job() -> None:
    source = EnvironmentSecrets({"INTERLOCK_OWN": "xoxb-1", "INTERLOCK_KEY": "k"}, withheld={"INTERLOCK_OWN"})

    with pytest.raises(Rejected, match="INTERLOCK_OWN"):
        await Filling(source).text("Bearer ${INTERLOCK_OWN}")

    assert await Filling(source).text("${INTERLOCK_KEY}") == "k"


class Managed:
    """A keeper of secrets that notes what it is asked for; what it was told to forget has a new value."""

    def __init__(self, **values: str) -> None:
        self._values = {f"secretsmanager://{name.replace('_', '/', 1)}": value for name, value in values.items()}
        self.asked: list[str] = []

    async def read(self, name: str) -> str | None:
        self.asked.append(name)
        return self._values.get(name.partition("#")[0])

    def forget(self, name: str) -> bool:
        self._values[name.partition("#")[0]] += "-new"
        return True


@pytest.mark.parametrize(
    ("template", "filled", "name"),
    [
        ("Bearer secretsmanager://prod/api#token", "Bearer s3cret", "secretsmanager://prod/api#token"),
        ("secretsmanager://prod/api", "s3cret", "secretsmanager://prod/api"),
        ('{"k": "secretsmanager://prod/api#a.b"}', '{"k": "s3cret"}', "secretsmanager://prod/api#a.b"),
        ("It is secretsmanager://prod/api#token.", "It is s3cret.", "secretsmanager://prod/api#token"),
    ],
)
async def test_a_managed_secret_is_named_by_its_address(template: str, filled: str, name: str) -> None:
    managed = Managed(prod_api="s3cret")

    assert await Filling(JobSecrets(SOURCE, managed)).text(template) == filled
    assert managed.asked == [name]


async def test_each_kind_of_secret_comes_from_its_own_place() -> None:
    filling = Filling(JobSecrets(SOURCE, Managed(prod_api="$INTERLOCK_KEY")))

    assert await filling.text("$INTERLOCK_KEY secretsmanager://prod/api") == 'a"b $INTERLOCK_KEY'


async def test_a_managed_secret_that_is_not_there_is_an_error_that_names_it() -> None:
    with pytest.raises(MissingSecret, match=r"secretsmanager://prod/typo#k, which does not exist"):
        await Filling(JobSecrets(SOURCE, Managed())).text("secretsmanager://prod/typo#k")


async def test_a_refused_secret_is_read_anew_and_its_old_value_stays_hidden() -> None:
    filling = Filling(JobSecrets(SOURCE, Managed(prod_api="s3cret")))
    await filling.text("secretsmanager://prod/api $INTERLOCK_KEY")

    assert filling.forget()
    assert await filling.text("secretsmanager://prod/api") == "s3cret-new"
    assert filling.secrets >= {"s3cret", "s3cret-new"}


async def test_a_secret_of_the_environment_is_no_reason_to_try_again() -> None:
    filling = Filling(SOURCE)
    await filling.text("$INTERLOCK_KEY")

    assert not filling.forget()
