"""Read the version of the installed package."""


def version_line() -> str:
    from importlib.metadata import version  # noqa: PLC0415  loading it would delay every command

    return f"interlock {version('interlock')}"
