"""Draw the diagrams of the docs from the code: `make diagrams`."""

from pathlib import Path

from docs.diagrams.choreography import draw_choreography
from docs.diagrams.flow import draw_flow
from docs.diagrams.layers import Edge
from docs.diagrams.packages import draw_packages
from tests.test_architecture import FLOOR, LAYERS

FOLDER = Path(__file__).parent


def package_imports() -> set[Edge]:
    """Which package imports which other one."""
    pairs = {
        (module.package, FLOOR.modules[name].package)
        for module in FLOOR.modules.values()
        for name in FLOOR.targets(module)
    }
    return {(importer, imported) for importer, imported in pairs if importer != imported}


def drawings() -> dict[Path, str]:
    """Return every diagram as it should be now, by its file."""
    return {
        FOLDER / "choreography.svg": draw_choreography(),
        FOLDER / "flow.svg": draw_flow(),
        FOLDER / "packages.svg": draw_packages(LAYERS, package_imports()),
    }


def main() -> None:
    for path, text in drawings().items():
        path.write_text(text, encoding="utf-8")
        print(f"drew {path.name}")


if __name__ == "__main__":
    main()
