"""Store URLs: where the tables of a store are."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from worker.core.errors import ConfigError
from worker.store.table import TableName

TableNames: TypeAlias = Mapping[TableName, str]


EXAMPLES: Final = "use sqlite:///interlock.db, dynamodb://PREFIX?region=REGION or redis://HOST:6379/0"


DYNAMODB_OPTIONS: Final = frozenset({"region", "endpoint", *TableName})


TABLE_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{3,255}")


# The names of redis-py where it has one.
REDIS_OPTIONS: Final = frozenset({
    "prefix", "service", "wait", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname",
    "sentinel_username", "sentinel_password",
})  # fmt: skip
REDIS_SCHEMES: Final = frozenset(
    f"{scheme}{kind}" for scheme in ("redis", "rediss") for kind in ("", "+sentinel", "+cluster")
)
REDIS_PORT, SENTINEL_PORT = 6379, 26379
REDIS_PREFIX: Final = "interlock"
REPLICAS_MAX: Final = 10
KEY_PREFIX: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PASSWORD: Final = re.compile(r"(?<=://)([^/@]*:)?[^/@]+@")
_SECRET_OPTION: Final = re.compile(r"([?&][a-z_]*password=)[^&#]*", re.IGNORECASE)


class SqlitePlace(msgspec.Struct, frozen=True):
    """Locates a SQLite file: `path` without symbolic links, `named` as it was given.

    All programs that name one file thus agree on the files next to it.
    """

    path: Path
    named: Path


class DynamoPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Locates DynamoDB tables; None leaves region or endpoint to the AWS environment."""

    names: TableNames
    region: str | None
    endpoint: str | None


class RedisPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Locates an installation on a Redis server, behind Sentinels, or on a cluster.

    `wait` is how many replicas must confirm a commit. `tls` holds options by redis-py's names.
    """

    nodes: tuple[tuple[str, int], ...]
    prefix: str = REDIS_PREFIX
    database: int = 0
    username: str | None = None
    password: str | None = None
    has_tls: bool = False
    tls: tuple[tuple[str, str | bool], ...] = ()
    service: str | None = None  # the name that the Sentinels know; then `nodes` are the Sentinels
    sentinel_username: str | None = None
    sentinel_password: str | None = None
    is_cluster: bool = False
    wait: int = 0

    def __repr__(self) -> str:
        """Return the place without its passwords, because a log may contain it."""
        return f"RedisPlace({self.shown!r})"

    @property
    def shown(self) -> str:
        """Return the place for people, without secrets."""
        kind = "+cluster" if self.is_cluster else "+sentinel" if self.service else ""
        nodes = ",".join(f"{host}:{port}" for host, port in self.nodes)
        service = f"{self.service}@" if self.service else ""
        return f"{'rediss' if self.has_tls else 'redis'}{kind}://{service}{nodes}/{self.database}#{self.prefix}"


Place: TypeAlias = SqlitePlace | DynamoPlace | RedisPlace


def without_secrets(url: str) -> str:
    """Return a store URL as it may be shown: passwords are replaced by three dots."""
    hidden = _PASSWORD.sub(lambda found: f"{found[1] or ''}…@", url)
    return _SECRET_OPTION.sub(r"\1…", hidden)


def locate(url: str) -> Place:
    """Parse a store URL. Raises `ConfigError` for a URL that names no store."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"the store {without_secrets(url)!r} is not a URL: {error}; {EXAMPLES}") from error
    if parts.scheme in REDIS_SCHEMES:
        return _redis_place(without_secrets(url), parts)
    match parts.scheme:
        case "sqlite":
            named = _path(url, parts)
            return SqlitePlace(_without_links(named), named)
        case "dynamodb":
            options = _options(url, parts)
            names = _table_names(url, parts.netloc, options)
            return DynamoPlace(names=names, region=options.get("region"), endpoint=_endpoint(url, options))
        case _:
            raise ConfigError(f"the store {without_secrets(url)!r} has no backend we know; {EXAMPLES}")


def _path(url: str, parts: SplitResult) -> Path:
    if parts.netloc or not parts.path.startswith("/") or len(parts.path) < 2:
        raise ConfigError(
            f"the store {url!r} names no file; use sqlite:///interlock.db, or four slashes for a root path"
        )
    if parts.query or parts.fragment:
        raise ConfigError(f"the store {url!r} has options, but sqlite:/// takes only a path")
    return Path(unquote(parts.path[1:]))


def _without_links(named: Path) -> Path:
    """Resolve symbolic links. A path without links stays as it was written, for use in messages."""
    try:
        resolved = named.resolve()
        return named if resolved == named.absolute() else resolved
    except RuntimeError as error:
        raise ConfigError(f"the store {named} is a link that leads back to itself; name the file") from error
    except (OSError, ValueError):
        return named  # opening it reports what is wrong


def _options(url: str, parts: SplitResult) -> Mapping[str, str]:
    if parts.path not in {"", "/"} or parts.fragment:
        raise ConfigError(f"the store {url!r} has a path; dynamodb:// takes a prefix and ?options only")
    return _known_options(url, parts, DYNAMODB_OPTIONS)


def _known_options(url: str, parts: SplitResult, known: frozenset[str]) -> Mapping[str, str]:
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    for name, value in pairs:
        if name not in known:
            close = get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(known))}"
            raise ConfigError(f"the store {url!r} has an unknown option {name!r}; {hint}")
        if not value:
            raise ConfigError(f"the store {url!r} has an empty option {name!r}; give it a value or leave it out")
    return dict(pairs)


def _endpoint(url: str, options: Mapping[str, str]) -> str | None:
    endpoint = options.get("endpoint")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise ConfigError(f"the store {url!r} has an endpoint without http:// or https://; write it whole")
    return endpoint


def _table_names(url: str, prefix: str, options: Mapping[str, str]) -> TableNames:
    if not prefix and not all(table in options for table in TableName):
        raise ConfigError(f"the store {url!r} has no prefix; give one, or name all four tables; {EXAMPLES}")
    names = {table: options.get(table, f"{prefix}-{table}") for table in TableName}
    for name in names.values():
        if not TABLE_NAME.fullmatch(name):
            raise ConfigError(
                f"the store {url!r} needs a table {name!r}, but a table's name is 3 to 255 letters, digits, _ . and -"
            )
    if len(set(names.values())) < len(names):
        raise ConfigError(f"the store {url!r} gives two tables one name; each of the four needs its own")
    return names


# --- Redis ------------------------------------------------------------------------------------------------------------


def _redis_place(url: str, parts: SplitResult) -> RedisPlace:
    """Parse a Redis URL; `url` is how messages show it."""
    if parts.fragment:
        raise ConfigError(f"the store {url!r} has a #; percent-encode it in a password as %23")
    scheme, _, kind = parts.scheme.partition("+")
    options = _known_options(url, parts, REDIS_OPTIONS)
    credentials, _, netloc = parts.netloc.rpartition("@")
    username, _, password = credentials.partition(":")
    place = RedisPlace(
        nodes=_nodes(url, netloc, SENTINEL_PORT if kind == "sentinel" else REDIS_PORT),
        prefix=_key_prefix(url, options.get("prefix", REDIS_PREFIX)),
        database=_database(url, parts.path, is_cluster=kind == "cluster"),
        username=unquote(username) or None,
        password=unquote(password) or None,
        has_tls=scheme == "rediss",
        tls=_tls_options(url, options, has_tls=scheme == "rediss"),
        service=options.get("service"),
        sentinel_username=options.get("sentinel_username"),
        sentinel_password=options.get("sentinel_password"),
        is_cluster=kind == "cluster",
        wait=_replicas(url, options.get("wait", "0")),
    )
    if (kind == "sentinel") != (place.service is not None):
        raise ConfigError(
            f"the store {url!r} must name what the Sentinels watch; write redis+sentinel://HOST:26379/0?service=NAME"
        )
    if len(place.nodes) > 1 and not kind:
        raise ConfigError(
            f"the store {url!r} names several servers; say how they belong together: redis+sentinel:// or "
            "redis+cluster://"
        )
    return place


def _nodes(url: str, netloc: str, port: int) -> tuple[tuple[str, int], ...]:
    nodes: list[tuple[str, int]] = []
    for each in netloc.split(","):
        try:
            node = urlsplit(f"//{each}")
            host, found = node.hostname, node.port
        except ValueError as error:
            raise ConfigError(f"the store {url!r} has the address {each!r}: {error}; write HOST:PORT") from error
        if not host:
            raise ConfigError(f"the store {url!r} names no server; {EXAMPLES}")
        nodes.append((host, port if found is None else found))
    return tuple(nodes)


def _key_prefix(url: str, prefix: str) -> str:
    if not KEY_PREFIX.fullmatch(prefix):
        raise ConfigError(f"the store {url!r} has the prefix {prefix!r}, but it is 1 to 64 letters, digits, _ . and -")
    return prefix


def _database(url: str, path: str, *, is_cluster: bool) -> int:
    number = path.removeprefix("/")
    if number and not number.isdecimal():
        raise ConfigError(f"the store {url!r} has the path {path!r}; after the server comes the number of its database")
    if is_cluster and number not in {"", "0"}:
        raise ConfigError(f"the store {url!r} names database {number}, but a cluster has only database 0; leave it out")
    return int(number or 0)


def _replicas(url: str, wait: str) -> int:
    if not wait.isdecimal() or int(wait) > REPLICAS_MAX:
        raise ConfigError(
            f"the store {url!r} has wait={wait!r}; it is the number of replicas that confirm a commit, between 0 and "
            f"{REPLICAS_MAX}"
        )
    return int(wait)


def _tls_options(url: str, options: Mapping[str, str], *, has_tls: bool) -> tuple[tuple[str, str | bool], ...]:
    given = {name: value for name, value in options.items() if name.startswith("ssl_")}
    if given and not has_tls:
        raise ConfigError(f"the store {url!r} has {', '.join(sorted(given))}, which only rediss:// uses")
    if given.get("ssl_cert_reqs", "required") not in {"required", "optional", "none"}:
        raise ConfigError(f"the store {url!r} has ssl_cert_reqs={given['ssl_cert_reqs']!r}; use required or none")
    hostname = given.pop("ssl_check_hostname", None)
    checks = {} if hostname is None else {"ssl_check_hostname": hostname.lower() not in {"0", "false", "no"}}
    return tuple({**given, **checks}.items())
