"""The actions of `rmb-peer`: maps options to actions, and reports failures in one line."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from peer import loops
from peer.arguments import FAILED, USAGE_ERROR, UsageError
from peer.errors import PeerError
from peer.gateway import logs
from peer.gateway.options import Action, Options, parse
from peer.stdout import given_up

logger = logging.getLogger("rmb-peer")


def run(argv: Sequence[str] | None = None) -> int:
    """Run the gateway, or the action that the options select; return the exit code."""
    tell: Callable[[str], None] = _print
    try:
        options = parse(sys.argv[1:] if argv is None else argv)
        # The other actions print results, which log lines would only obscure.
        quiet = options.action not in (Action.RUN, Action.MANY)
        logs.set_up(options.debug, options.log_format, logging.ERROR if quiet else logging.INFO)
        if options.log_format == "json":
            tell = logger.error
        for warning in options.warnings:
            logger.warning(warning)
        code = loops.run(_action(options))
        sys.stdout.flush()
        return code
    except UsageError as error:
        tell(str(error))
        return USAGE_ERROR
    except PeerError as error:
        tell(str(error))
        return FAILED
    except KeyboardInterrupt:
        return FAILED
    except OSError as error:
        if told := given_up(error):
            tell(told)
        return FAILED


def _print(text: str) -> None:
    print(f"rmb-peer: {text}", file=sys.stderr)


def _action(options: Options) -> Coroutine[Any, Any, int]:
    # Each action imports what only it needs.
    if options.action is Action.CHECK and options.many is not None:
        from peer.gateway import many_check

        return many_check.run(options)
    if options.action is Action.CHECK:
        from peer.gateway import check

        return check.run(options)
    if options.action is Action.DEAD_LETTERS:
        from peer.gateway import dead_letters_list

        return dead_letters_list.run(options)
    if options.action is Action.MANY:
        from peer.gateway import many

        return many.run(options)
    from peer.gateway import service

    return service.run(options)
