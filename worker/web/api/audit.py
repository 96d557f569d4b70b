"""Names who asks over HTTP, for the event of the action."""

from worker.operations.operator_actions import Requester
from worker.web.api.context import RequestAuthor

VIA = "web"


def requester_of(author: RequestAuthor) -> Requester:
    caller = author.caller
    return Requester(name=caller.name, via=VIA, role=caller.role.value, request_id=author.request_id)
