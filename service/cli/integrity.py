"""`verify`, `anchor`, `anchor-key`: is the log what was written?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption, LogOption, open_log

if TYPE_CHECKING:
    from ..log import EventLog, Verified


def verify_command(
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="One session.")] = None,
    key_file: Annotated[
        list[Path] | None,
        typer.Option("--key-file", help="Another machine's key, to check its seals. May be repeated."),
    ] = None,
    anchor: Annotated[
        Path | None, typer.Option("--anchor", help="Check too that nothing was rewritten since this anchor.")
    ] = None,
    public_key: Annotated[
        Path | None, typer.Option("--public-key", help="The key in PEM that the anchor must be signed with.")
    ] = None,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check every record against its hash, its seal and the record before it."""
    if public_key is not None and anchor is None:
        raise typer.BadParameter("there is no --anchor to check with it", param_hint="--public-key")
    from ..log import LogKey
    from .console import output, progress

    with open_log(log) as event_log:
        keys = [LogKey.load(path) for path in key_file or []]
        with progress("verifying") as told:
            results = list(event_log.verify(session, keys=keys, progress=told))
        rewritten = _check_anchor(event_log, anchor, public_key) if anchor is not None else None
    wrong = [result for result in results if result.finding is not None]
    if as_json:
        print(json.dumps(_as_json(results, rewritten), indent=2))
    else:
        console = output()
        for result in wrong:
            console.print(_sentence(result), markup=False, style="red", soft_wrap=True)
        for text in rewritten or []:
            console.print(text, markup=False, style="red", soft_wrap=True)
        console.print(_summary(results, wrong), markup=False, soft_wrap=True)
        if anchor is not None and not rewritten:
            console.print("Nothing was rewritten since the anchor.", markup=False)
    if wrong or rewritten:
        raise typer.Exit(1)


def anchor_command(
    key: Annotated[Path, typer.Option("--key", help="Ed25519 private key in PEM: see anchor-key.")],
    output_file: Annotated[Path | None, typer.Option("--output", help="Where to write it.")] = None,
    log: LogOption = None,
) -> None:
    """Write a signed statement of how far every session goes, for somebody else to keep."""
    from ..log.anchor import load_private_key

    with open_log(log) as event_log:
        text = json.dumps(event_log.anchor(load_private_key(key)), indent=1)
    if output_file is None:
        print(text)
    else:
        from ..log.transfer.export import completed

        with completed(output_file) as file:
            file.write(text.encode() + b"\n")


def anchor_key_command(
    file: Annotated[Path, typer.Argument(help="Where to write the private key; the public one gets .pub.")],
) -> None:
    """Make a key pair for anchors. Give the public key to whoever keeps the anchors."""
    from ..log.anchor import make_signing_key

    make_signing_key(file)
    print(f"private key: {file}\npublic key: {file}.pub")


def _check_anchor(event_log: EventLog, path: Path, public_key: Path | None) -> list[str]:
    from ..log import InvalidAnchor
    from ..log.anchor import load_public_key

    try:
        anchor = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidAnchor(f"{path} cannot be read: {error}") from None
    checked = event_log.check_anchor(anchor, None if public_key is None else load_public_key(public_key))
    return [
        f"session {found.session_id}: record {found.sequence} is not what the anchor of "
        f"{checked.made_at} saw: {found.detail}"
        for found in checked.rewritten
    ]


def _sentence(result: Verified) -> str:
    finding = result.finding
    assert finding is not None
    place = "" if finding.position is None else f" (position {finding.position})"
    return (
        f"session {result.session_id}: record {finding.sequence}{place} is {finding.fault}: {finding.detail}"
    )


def _summary(results: list[Verified], wrong: list[Verified]) -> str:
    records = sum(result.records for result in results)
    unchained = sum(result.unchained for result in results)
    unchecked = sum(result.unchecked_seals for result in results)
    parts = [f"sessions: {len(results):,}, of them altered: {len(wrong):,}; records: {records:,}."]
    if unchained:
        parts.append(f"{unchained:,} records from before records had hashes.")
    if unchecked:
        parts.append(f"{unchecked:,} records sealed with another machine's key: give --key-file.")
    return " ".join(parts)


def _as_json(results: list[Verified], rewritten: list[str] | None) -> dict[str, object]:
    return {
        "sessions": len(results),
        "records": sum(result.records for result in results),
        "unchained": sum(result.unchained for result in results),
        "unchecked_seals": sum(result.unchecked_seals for result in results),
        "findings": [
            {
                "session_id": result.finding.session_id,
                "sequence": result.finding.sequence,
                "position": result.finding.position,
                "fault": result.finding.fault.value,
                "detail": result.finding.detail,
            }
            for result in results
            if result.finding is not None
        ],
        "rewritten": rewritten,
    }
