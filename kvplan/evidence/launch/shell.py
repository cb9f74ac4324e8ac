"""From a pasted command line to vLLM's own words: environment, program, image tag, and what follows them."""

from __future__ import annotations

import re
import shlex
from itertools import groupby
from typing import NamedTuple

from kvplan.errors import InputError
from kvplan.evidence.launch.flags import names

MAX_CHARACTERS = 65_536
_CONTINUED = re.compile(r"[\\^`][ \t\r]*\n")  # of sh, cmd and PowerShell
_QUOTES = str.maketrans({0x201C: '"', 0x201D: '"', 0x201E: '"', 0x2018: "'", 0x2019: "'"})  # of text processors
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_TAG = re.compile(r"v?(\d+\.\d+(?:\.\d+){0,2}(?:\.?(?:rc|post|dev)\d+){0,2})(?:[-+].*)?")
_OPERATORS = "();<>|&\n"
_CONTAINER = ("docker", "podman", "nerdctl")
_WITH_VALUE = frozenset(  # options of `docker run` whose value is the next word
    names(
        """
        -v -e -p -w -u -h -l -m -c --name --gpus --ipc --shm-size --env --volume --network --net --runtime --restart
        --entrypoint --user --workdir --device --ulimit --cap-add --cap-drop --security-opt --group-add --hostname
        --label --mount --env-file --platform --pull --memory --cpus --cpuset-cpus --cpuset-mems --log-driver
        --log-opt --add-host --publish --tmpfs --pid --userns --stop-timeout --memory-swap --health-cmd
        """
    )
)
SERVERS = ("api_server.py", "vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "vllm.entrypoints.cli")


class Command(NamedTuple):
    """What vLLM was given: its words, the environment, and the version of its image."""

    words: list[str]
    environment: dict[str, str]
    version: str | None


def find_command(text: str) -> Command:
    """The vLLM server's command in a text; InputError when there is none or a quote is left open."""
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"--launch: more than {MAX_CHARACTERS:,} characters are no command line")
    environment: dict[str, str] = {}
    for words in _commands(text):
        found = _server(words, environment)
        if found:
            return found
    raise InputError(
        "--launch: no vLLM server in it; write it as you start it, for example"
        " 'vllm serve ORG/NAME --tensor-parallel-size 2' (python -m vllm.entrypoints.openai.api_server and"
        " docker run work too)"
    )


def _commands(text: str) -> list[list[str]]:
    """The commands of a text, each as words; a line that begins with a dash goes on with the one before."""
    joined = _CONTINUED.sub(" ", text.translate(_QUOTES))
    joined = re.sub(r"\n[ \t\r]{0,200}(?=[-\u2013\u2014])", " ", joined)
    lexer = shlex.shlex(joined, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    try:
        words = list(lexer)
    except ValueError:
        raise InputError("--launch: a quote is not closed") from None
    split = groupby(words, key=lambda word: bool(word) and set(word) <= set(_OPERATORS))
    return [list(group) for operator, group in split if not operator]


def _server(words: list[str], environment: dict[str, str]) -> Command | None:
    """The server in one command; assignments on the way are kept."""
    for index, word in enumerate(words):
        assigned = _ASSIGNMENT.fullmatch(word)
        name = word.rpartition("/")[2]
        if assigned:
            environment[assigned[1]] = assigned[2]
        elif name == "vllm" and words[index + 1 : index + 2] == ["serve"]:
            return Command(words[index + 2 :], environment, None)
        elif name in SERVERS:
            rest = words[index + 1 :]
            return Command(rest[1:] if rest[:1] == ["serve"] else rest, environment, None)
        elif name in _CONTAINER and "run" in words[index + 1 :]:
            return _in_container(words[words.index("run", index) + 1 :], environment)
    return None


def _in_container(words: list[str], environment: dict[str, str]) -> Command | None:
    """What stands behind the image's name; the image's entry point is the server."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        option = words[index]
        if option in ("-e", "--env") and index + 1 < len(words):
            name, _, value = words[index + 1].partition("=")
            environment[name] = value
        index += 2 if option in _WITH_VALUE else 1
    if index == len(words) or "vllm" not in words[index].lower():
        return None
    rest = words[index + 1 :]
    for start in (["vllm", "serve"], ["serve"]):
        if rest[: len(start)] == start:
            rest = rest[len(start) :]
    inner = _server(list(rest), environment)
    tag = _TAG.fullmatch(words[index].partition("@")[0].rpartition(":")[2])
    return Command(inner.words if inner else rest, environment, tag[1] if tag else None)
