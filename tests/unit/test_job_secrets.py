"""Secrets in job configurations."""

import pytest

from worker.jobs.secrets import EnvironmentSecrets, Filling, MissingSecret

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
