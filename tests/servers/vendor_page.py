"""Copies the page's libraries from node_modules into src/stepwell/ui/vendor: run it after changing
their versions in package.json. Only the names in import lines are changed, so that browsers find
the files without a build step or an import map; a test compares what is there with the packages.
"""

import json
import re
from pathlib import Path

PACKAGES = Path(__file__).parent / "node_modules"
VENDOR = Path(__file__).parents[2] / "src" / "stepwell" / "ui" / "vendor"
SOURCES = {
    "preact.js": "preact/dist/preact.mjs",
    "preact-hooks.js": "preact/hooks/dist/hooks.mjs",
    "signals-core.js": "@preact/signals-core/dist/signals-core.mjs",
    "signals.js": "@preact/signals/dist/signals.mjs",
    "htm.js": "htm/dist/htm.module.js",
    "marked.js": "marked/lib/marked.esm.js",
}
NAMES = {
    "preact": "./preact.js",
    "preact/hooks": "./preact-hooks.js",
    "@preact/signals-core": "./signals-core.js",
}
WHOSE = ("preact", "@preact/signals-core", "@preact/signals", "htm", "marked")


def vendored() -> dict[str, str]:
    """The text of each file as it should be."""
    files = {name: _for_browsers(PACKAGES / source) for name, source in SOURCES.items()}
    files["LICENSES.txt"] = "\n\n".join(map(_licence, WHOSE)) + "\n"
    return files


def _for_browsers(source: Path) -> str:
    text = source.read_text(encoding="utf-8")
    text = re.sub(r"\n//# sourceMappingURL=\S+\s*$", "\n", text)
    return re.sub(r'from"([^".][^"]*)"', lambda found: f'from"{NAMES[found[1]]}"', text)


def _licence(package: str) -> str:
    folder = PACKAGES / package
    described = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    text = (folder / "LICENSE").read_text(encoding="utf-8").strip()
    return f"{package} {described['version']} ({described['license']})\n\n{text}"


def main() -> None:
    """Write the files."""
    VENDOR.mkdir(exist_ok=True)
    for name, text in vendored().items():
        (VENDOR / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
