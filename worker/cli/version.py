"""Which version of Interlock this is."""


def version_line() -> str:
    from importlib.metadata import version  # noqa: PLC0415  every command would wait for it

    return f"interlock {version('interlock')}"
