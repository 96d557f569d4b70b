"""Route events to channels by severity and pipeline owner, as the alerts file says."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from consumers.outbox.severities import Severity
from worker.config.documents import read_document
from worker.config.problems import Problems
from worker.config.scalars import read_duration
from worker.config.schema import DurationText, Section
from worker.config.shape import read_shape
from worker.config.versions import PipelineVersions
from worker.core.errors import ConfigError, Rejected
from worker.core.model.ids import PipelineId

DIGEST_EVERY: Final = timedelta(minutes=15)
DIGEST_LEAST: Final = timedelta(minutes=1)
_SEVERITIES: Final[Mapping[str, Severity]] = {
    "alert": Severity.ALERT,
    "warning": Severity.WARNING,
    "success": Severity.SUCCESS,
    "note": Severity.NOTE,
}

Channel: TypeAlias = Annotated[str, Field(max_length=100)]
# Returns the owner of a pipeline from its configuration; "" if it has none. Raises `RetryLater`.
OwnerOf: TypeAlias = Callable[[str], Awaitable[str]]


class ChannelsSection(Section):
    channel: Channel = Field(default="", description="Everything that is not sent elsewhere.")
    alert: Channel = Field(default="", description="What a person must act on.")
    warning: Channel = Field(default="", description="What a person may have to act on.")
    success: Channel = Field(default="", description="What went well, and its digest.")
    note: Channel = Field(default="", description="What is good to know.")


SeverityName: TypeAlias = Literal["alert", "warning", "success", "note"]
Severities: TypeAlias = list[SeverityName]


class TargetsSection(Section):
    webhook: Severities = Field(default_factory=list[SeverityName], description="Severities that it gets; unset: all.")
    pagerduty: Severities = Field(default_factory=list[SeverityName], description="As above; unset: alert.")
    teams: Severities = Field(default_factory=list[SeverityName], description="As above; unset: alert and warning.")


class AlertsFile(ChannelsSection):
    targets: TargetsSection = Field(
        default_factory=TargetsSection, description="Which severities the targets besides Slack get."
    )
    owners: dict[str, ChannelsSection] = Field(
        default_factory=dict[str, ChannelsSection], description="Channels of a pipeline's owner; they come first."
    )
    successes: Literal["digest", "each"] = Field(default="digest", description="One message now and then, or each.")
    digest_every: DurationText = Field(default="15m", description="How long a digest gathers.")


@dataclass(frozen=True, slots=True)
class Channels:
    usual: str = ""
    by_severity: Mapping[Severity, str] = field(default_factory=dict[Severity, str])

    def of(self, severity: Severity) -> str:
        return self.by_severity.get(severity) or self.usual


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    everyone: Channels
    owners: Mapping[str, Channels] = field(default_factory=dict[str, Channels])
    digest_every: timedelta | None = DIGEST_EVERY  # None: each success is posted
    targets: Mapping[str, frozenset[Severity]] = field(default_factory=dict[str, frozenset[Severity]])

    @property
    def usual(self) -> str:
        """Return the default channel, for events whose own channel does not exist."""
        return self.everyone.usual

    def channel(self, severity: Severity, owner: str) -> str:
        """Return the channel for a severity and an owner.

        The first that is set counts: the owner's channel for this severity, the owner's default channel, everyone's
        channel for this severity, everyone's default channel.
        """
        own = self.owners.get(owner, Channels())
        return own.of(severity) or self.everyone.of(severity)


def one_channel(channel: str) -> Routing:
    """Return a routing that sends every event to one channel."""
    return Routing(everyone=Channels(channel))


def read_routing(path: Path, *, has_channels: bool = True) -> Routing:
    """Read the alerts file. Raises `ConfigError` with every problem in it and its location."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the alerts file {path} cannot be read: {error}; INTERLOCK_ALERTS names it") from error
    return routing_of(text, str(path), has_channels=has_channels)


def routing_of(text: str, file: str = "<text>", *, has_channels: bool = True) -> Routing:
    """Parse the alerts file. Without a chat it needs no channel. Raises `ConfigError`."""
    document, problems = read_document(text, file)
    model = None if document is None else read_shape(AlertsFile, document.value, problems)
    routing = None if model is None else _routing(model, problems, has_channels=has_channels)
    if routing is None or problems.has_errors:
        raise _wrong(problems)
    return routing


def owners_of(configs: PipelineVersions) -> OwnerOf:
    async def owner_of(pipeline: str) -> str:
        try:
            version = await configs.current(PipelineId(pipeline)) if pipeline else None
        except Rejected:  # its stored configuration is damaged: alert all the more, in the default channel
            return ""
        return "" if version is None else version.pipeline.owner

    return owner_of


async def nobody(_pipeline: str) -> str:
    """Return "": no pipeline has an owner."""
    return ""


def _routing(model: AlertsFile, problems: Problems, *, has_channels: bool) -> Routing:
    if has_channels and not model.channel:
        problems.error(("channel",), "is required: where everything goes that is not sent elsewhere")
    every = read_duration(model.digest_every, ("digestEvery",), problems, default=DIGEST_EVERY, least=DIGEST_LEAST)
    return Routing(
        everyone=_channels(model),
        owners={owner: _channels(section) for owner, section in model.owners.items()},
        digest_every=every if model.successes == "digest" else None,
        targets={name: frozenset(_SEVERITIES[each] for each in chosen) for name, chosen in model.targets if chosen},
    )


def _channels(section: ChannelsSection) -> Channels:
    named = {
        Severity.ALERT: section.alert,
        Severity.WARNING: section.warning,
        Severity.SUCCESS: section.success,
        Severity.NOTE: section.note,
    }
    return Channels(section.channel, {severity: channel for severity, channel in named.items() if channel})


def _wrong(problems: Problems) -> ConfigError:
    return ConfigError("the alerts file is wrong:\n" + "\n".join(str(problem) for problem in problems.found))
