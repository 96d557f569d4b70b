"""Callback addresses: signed for one attempt, and worth nothing when changed."""

from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders.values import a_run
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.run.state import State
from worker.core.time.periods import Period
from worker.jobs.callbacks import END, PATH, CallbackClaim, callback_urls, seal, unseal

KEY = b"the key of this store"
NAMES = st.text(min_size=1, max_size=64)
PERIODS = st.builds(Period, st.dates(min_value=date(2000, 1, 1)), st.one_of(st.none(), st.integers(0, 23)))
CLAIMS = st.builds(
    CallbackClaim, st.builds(RunKey, NAMES.map(PipelineId), NAMES.map(ScheduleId), PERIODS), st.text(max_size=64)
)


@given(CLAIMS)
def test_a_claim_is_read_back_and_only_with_its_own_key(claim: CallbackClaim) -> None:
    sealed = seal(claim, KEY)

    if len(sealed) <= 1_024:
        assert unseal(sealed, KEY) == claim
    assert unseal(sealed, b"another key") is None


@given(st.text(max_size=200))
def test_no_other_text_is_a_claim(text: str) -> None:
    assert unseal(text, KEY) is None


def test_a_changed_claim_is_none() -> None:
    run = a_run(State.POLLING)
    sealed = seal(CallbackClaim(run.key, run.token), KEY)
    body, _, signature = sealed.partition(".")

    assert unseal(sealed, KEY) is not None
    assert unseal(f"{body}.", KEY) is None
    assert unseal(f".{signature}", KEY) is None
    assert unseal(f"{body[:-4]}AAAA.{signature}", KEY) is None


def test_the_address_of_an_attempt_is_always_the_same() -> None:
    url = callback_urls("https://console.example/interlock/", KEY)
    run = a_run(State.TRIGGERING)

    assert url(run) == url(run)
    assert url(run).startswith(f"https://console.example/interlock{PATH}")
    assert url(run).endswith(END)
