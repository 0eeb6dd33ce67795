"""For tests: keeps the lines that go to a bridge, and how long each is. Used as the bridge's command."""

from __future__ import annotations

import subprocess
import sys


def main(record: str, *command: str) -> int:
    """Run a bridge, and write each request that it gets to a file."""
    with (
        open(record, "ab", buffering=0) as kept,
        subprocess.Popen(command, stdin=subprocess.PIPE) as bridge,
    ):
        assert bridge.stdin is not None
        while line := sys.stdin.buffer.readline():
            kept.write(line)
            bridge.stdin.write(line)
            bridge.stdin.flush()
        bridge.stdin.close()
        return bridge.wait()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
