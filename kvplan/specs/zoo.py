"""Finding the YAML files that ship with kvplan: by name, by alias, never by reading the whole zoo.

`model_zoo/` lies beside the package in a checkout (an editable install too) and inside it in an installed wheel.
`index.json` of a kind maps every alias, in lower case, to a file's name. Rewrite it after editing aliases:
`python -c "from kvplan.specs import zoo; zoo.write_index('gpus')"`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from kvplan.errors import InputError, did_you_mean
from kvplan.specs.scalars import shown

WORDS = {"gpus": "GPU", "models": "model"}  # a kind's folder and command, and what one of it is called
SUFFIXES = (".yaml", ".yml")
_LISTED = 8  # names in an error message


def zoo_dir(kind: str) -> Path:
    """The folder of the "models" or "gpus" files; InputError when this installation has none."""
    package = Path(__file__).resolve().parent.parent
    for parent in (package, package.parent):
        folder = parent / "model_zoo" / kind
        if folder.is_dir():
            return folder
    raise InputError(f"this installation of kvplan lacks its model_zoo/{kind} folder; install kvplan again")


def names(kind: str) -> list[str]:
    """The names of a kind, sorted; a listing of the folder, no file is opened."""
    return sorted(entry[: -len(".yaml")] for entry in os.listdir(zoo_dir(kind)) if entry.endswith(".yaml"))


def aliases(kind: str) -> dict[str, str]:
    """Other names, in lower case, and the file each stands for."""
    path = zoo_dir(kind) / "index.json"
    if not path.is_file():
        return {}
    index: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    return index


def lookup(kind: str, name: str) -> str | None:
    """The file's name for a name or an alias (upper or lower case), or None."""
    known, lower = names(kind), name.lower()
    if name in known:
        return name
    return lower if lower in known else aliases(kind).get(lower)


def find(kind: str, name: str) -> Path:
    """The one file that a name or an alias means; InputError lists what was near."""
    found = lookup(kind, name)
    if found is None:
        raise InputError(_not_found(kind, name))
    return zoo_dir(kind) / f"{found}.yaml"


def is_path(text: str) -> bool:
    """Whether a name on the command line is a file of the user's own: by its suffix, or because it is there."""
    if text.lower().endswith(SUFFIXES):
        return True
    return ("/" in text or os.sep in text) and os.path.exists(text)


def build_index(kind: str) -> dict[str, str]:
    """The index as the files' `aliases` and `driver_names` have it; InputError when a name means two files."""
    import yaml  # needed by those who edit the zoo; looking a name up is without it

    known = names(kind)
    index = {name: name for name in known}
    for name in known:
        content = yaml.safe_load((zoo_dir(kind) / f"{name}.yaml").read_text(encoding="utf-8"))
        for alias in (*content.get("aliases", ()), *content.get("driver_names", ())):
            lower = str(alias).lower()
            if lower in index:
                raise InputError(f"{name}.yaml: alias '{alias}' already stands for {index[lower]}")
            index[lower] = name
    return {alias: index[alias] for alias in sorted(index.keys() - set(known))}


def write_index(kind: str) -> None:
    """Rewrite index.json of a kind from its files."""
    text = json.dumps(build_index(kind), indent=1, ensure_ascii=False)
    (zoo_dir(kind) / "index.json").write_text(text + "\n", encoding="utf-8")


def _not_found(kind: str, name: str) -> str:
    known, index = names(kind), aliases(kind)
    longer = _starting_with(name.lower(), known, index)
    if longer:
        return f"'{shown(name)}' is not exact; write one of {_some(longer)}"
    short = name[:60].lower()
    near = did_you_mean(short, known) or did_you_mean(short, index) or ";"
    return f"unknown {WORDS[kind]} '{shown(name)}'{near} see `kvplan {kind}`"


def _starting_with(start: str, known: list[str], index: dict[str, str]) -> list[str]:
    if not start:
        return []
    by_name = [name for name in known if name.startswith(start)]
    return by_name or sorted({name for alias, name in index.items() if alias.startswith(start)})


def _some(found: list[str]) -> str:
    more = len(found) - _LISTED
    return ", ".join(found[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def search(kind: str, part: str | None) -> list[str]:
    """Names that contain `part`, or whose aliases do; InputError when there are none."""
    known = names(kind)
    if part is None:
        return known
    lower = part.lower()
    found = {name for name in known if lower in name} | {n for alias, n in aliases(kind).items() if lower in alias}
    if not found:
        raise InputError(_not_found(kind, part))
    return sorted(found)
