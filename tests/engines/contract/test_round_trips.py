"""A server survives every form in which it leaves the tuner: its command line, its files, JSON."""

from __future__ import annotations

import json
import random
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.args import ServerArgs
from tuner.cli.command_line import read_command
from tuner.cli.diff import running_args
from tuner.space import SearchSpace


def servers(case: Any) -> list[ServerArgs]:
    points = [case.server(point) for point in case.space.points()]
    return list({args.digest: args for args in points}.values())


def test_the_order_in_which_values_come_is_no_difference(case: Any) -> None:
    draw = random.Random(7)
    for point in case.space.points():
        items = list(point.items())
        draw.shuffle(items)
        assert case.server(dict(items)).digest == case.server(point).digest


def test_the_order_of_parameters_is_no_difference(case: Any) -> None:
    turned = SearchSpace(tuple(reversed(case.space.parameters)))
    for point in case.space.points():
        assert case.engine.canonicalize(point, turned).digest == case.server(point).digest


def test_what_every_server_has_is_in_the_baseline_too(case: Any) -> None:
    """Equal but for speculation: every flag of the baseline is the same in every server."""
    baseline = case.engine.without_speculation(case.server())
    for args in servers(case):
        assert {name: args.flags.get(name) for name in baseline.flags} == dict(baseline.flags)


def test_a_bundle_read_as_a_running_server_is_the_server(case: Any, tmp_path: Path) -> None:
    for number, args in enumerate(servers(case)):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, text in case.engine.render_config(args).items():
            (folder / name).write_text(text)
        again = running_args(str(folder / "server.yaml"), case.config, args)
        assert (again.digest, again) == (args.digest, args)


def test_a_command_line_read_as_a_running_server_is_the_server(case: Any) -> None:
    if case.config.kind == "fake":
        pytest.skip("a stand-in is nobody's server")
    for args in servers(case):
        command = case.engine.command(args, 12345)
        changed = [f"{k}={v}" for k, v in args.env.items() if v is not None]
        text = shlex.join([*changed, *command.argv])
        found = read_command(text)
        assert found.engine == case.config.kind
        again = running_args(text, case.config, args)
        given = {name: value for name, value in args.env.items() if value is not None}
        assert again == replace(args, env=given)


def test_json_of_the_flags_read_as_a_running_server_is_the_server(case: Any) -> None:
    for args in servers(case):
        if args.env:
            continue
        again = running_args(json.dumps(dict(args.flags)), case.config, args)
        assert (again.digest, again) == (args.digest, args)
