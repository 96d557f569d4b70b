"""What a lost session held is freed although its adoption kept it out of garbage collection."""

import gc
import weakref

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.embedded_workers import Crew
from worker.app.session import SessionWork
from worker.config.store_setting import GROUP
from worker.runtime.gc_tuning import freeze_again
from worker.store.repos.sessions import Sessions


def found(kind: type[object], but: "set[int]") -> "list[weakref.ref[object]]":
    return [weakref.ref(each) for each in gc.get_objects() if isinstance(each, kind) and id(each) not in but]


@on_virtual_time
async def test_the_session_and_its_engine_are_freed_once_the_next_one_begins() -> None:
    earlier = {id(each) for each in gc.get_objects() if isinstance(each, SessionWork)}
    crew = Crew()
    await crew.deployed()
    crew.worker("a")
    await crew.clock.sleep(5)
    [held] = found(SessionWork, earlier)

    gc.freeze()  # as an adoption does
    try:
        [session] = await Sessions(crew.store, GROUP).list()
        await Sessions(crew.store, GROUP).kill(session, crew.clock.now())
        await crew.clock.sleep(30)
        gc.collect()
        assert held() is not None

        freeze_again()

        assert held() is None
    finally:
        gc.unfreeze()
