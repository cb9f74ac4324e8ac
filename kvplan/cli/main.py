"""The entry point: finds the command, and turns errors into a sentence and an exit code."""

from __future__ import annotations

import errno
import gc
import os
import sys
from importlib import import_module
from typing import Any

import click
import typer
from typer.core import TyperGroup

from kvplan import __version__
from kvplan.errors import KvplanError

# name of the command -> module in kvplan.cli (each has a function `command`)
COMMANDS = {
    "estimate": "estimate",
    "sweep": "sweep",
    "solve": "solve",
    "verify": "verify",
    "import": "import_",
    "diff": "diff",
    "models": "models",
    "gpus": "gpus",
    "engines": "engines",
    "measure": "measure",
    "schema": "schema",
    "check": "check",
    "init": "init",
}

DISK_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # what only writing meets


class LazyGroup(TyperGroup):
    """Imports the one command that runs: building all of them would double the start."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """All commands, in the order in which a newcomer needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name, built now."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"kvplan.cli.{COMMANDS[cmd_name]}")
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(cmd_name)(module.command)
        return typer.main.get_command(single)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As click does, with near misses for a mistyped command."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from kvplan.errors import did_you_mean

            hint = did_you_mean(args[0], COMMANDS) or ";"
            raise click.UsageError(f"unknown command '{args[0]}'{hint} commands: {', '.join(COMMANDS)}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=LazyGroup, no_args_is_help=True, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"kvplan {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """Plan the memory of LLM serving: weights, KV cache, how many conversations fit; each number with its formula."""


def main(argv: list[str] | None = None) -> int:
    """Run a command line; returns the exit code, never raises for a mistake of the user."""
    command = typer.main.get_command(app)
    try:
        result = command.main(args=argv, prog_name="kvplan", standalone_mode=False)
    except click.UsageError as error:
        return _usage(error)
    except click.ClickException as error:
        return _fail(error.format_message(), 2)
    except KvplanError as error:
        return _fail(str(error), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", 130)
    except (OSError, SystemExit) as error:
        return _unwritten(error)
    return result if isinstance(result, int) else 0


def _unwritten(error: OSError | SystemExit) -> int:
    """The reader left, which is no error, or the disk is full."""
    left = isinstance(error, BrokenPipeError | SystemExit)  # Click makes a SystemExit of a broken pipe
    if isinstance(error, OSError) and not left and error.errno not in DISK_TROUBLE:
        raise error
    try:
        sys.stdout.flush()
    except OSError:  # what still waits goes nowhere, or Python would try again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0 if left else _fail(f"the result could not be written: {getattr(error, 'strerror', error)}", 2)


def _usage(error: click.UsageError) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        typer.echo(error.format_message())
        return 2
    where = error.ctx.command_path if error.ctx else "kvplan"
    return _fail(f"{error.format_message()}\nsee `{where} --help`", 2)


def _fail(message: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code


def run() -> None:
    """The console script."""
    for name in ("stdout", "stderr"):  # closed by the caller: what is written goes nowhere
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for the whole run
    code = main()
    gc.freeze()  # at exit Python would search all modules for garbage, which takes a tenth of a short command's time
    sys.exit(code)
