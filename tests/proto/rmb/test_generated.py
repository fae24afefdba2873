"""The generated protobuf code in the repository is up to date with its sources."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parents[3] / "proto" / "rmb"


def test_generated_code_is_in_step(tmp_path: Path) -> None:
    # The command of `make proto`, with another output folder.
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", "-I", str(SOURCES)),
            *(f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", "types.proto", "peer.proto"),
        ],
        check=True,
    )
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == ["peer_pb2.py", "peer_pb2.pyi", "types_pb2.py", "types_pb2.pyi"]
    for name in made:
        assert (tmp_path / name).read_text() == (SOURCES / name).read_text(), (
            f"run `make proto`: {name}"
        )
