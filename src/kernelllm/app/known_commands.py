"""Groups of click commands: an unknown name is answered with the known ones."""

from __future__ import annotations

import difflib

import click


class KnownCommands(click.Group):
    """A click group whose help lists commands as they are written; its error for an unknown command names the nearest and all."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0] if args else "", self.list_commands(ctx)
        if name and not name.startswith("-") and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"There is no command {name!r}.{hint} Commands: {', '.join(known)}.", ctx)
        return super().resolve_command(ctx, args)
