"""Records who did what over HTTP: as the requester of a request, or as an event of its own."""

from worker.operations.operator_actions import OperatorAction, Requester, action_event
from worker.runtime.ids import random_id
from worker.store.repos.events import event_write
from worker.web.api.context import ApiContext, RequestAuthor

VIA = "web"


def requester_of(author: RequestAuthor) -> Requester:
    caller = author.caller
    return Requester(name=caller.name, via=VIA, role=caller.role.value, request_id=author.request_id)


async def record_action(context: ApiContext, author: RequestAuthor, action: OperatorAction) -> None:
    """Commit the event of an action that has no commit of its own to be part of."""
    event = action_event(requester_of(author), action, event_id=random_id(), at=context.clock.now())
    await context.tables.commit(event_write(event))
