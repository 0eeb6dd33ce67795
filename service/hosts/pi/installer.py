"""Puts the extension into Pi's extension folder and takes it out again; touches nothing of others."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from context_paging.domain.errors import ContextPagingError

from .folders import EXTENSION
from .manifest import MANIFEST, packaged_files, packaged_manifest, read_manifest


class ForeignExtension(ContextPagingError):
    """Where the extension goes, there is something that was not installed by this package."""

    code = "FOREIGN_EXTENSION"


class NotInstalled(ContextPagingError):
    """There is no extension of this package to take out."""

    code = "NOT_INSTALLED"


@dataclass(frozen=True, slots=True)
class Removed:
    """What `uninstall` did: the extension's folder, and the files in it that are not ours and stay."""

    folder: Path
    left: tuple[str, ...]


def install(extensions: Path) -> Path:
    """Install or update the extension below an extensions folder. Returns the extension's own folder.

    The new folder is made beside the old one and takes its place at once; files of others in it are kept.

    Raises:
        ForeignExtension: the place is taken by something that is not ours.
    """
    target = extensions / EXTENSION
    installed = read_manifest(target)
    if installed is None and (target.is_symlink() or (target.exists() and not _is_empty_folder(target))):
        raise ForeignExtension(
            f"{target} was not installed by this package; move it away, or give another --folder"
        )
    if target.is_symlink():
        raise ForeignExtension(f"{target} is a link; remove it, and what it names stays as it is")
    contents = packaged_files()
    manifest = packaged_manifest(contents)
    extensions.mkdir(parents=True, exist_ok=True)
    # Not in the extensions folder itself: Pi would load what it finds there.
    work = Path(mkdtemp(prefix=f".{EXTENSION}-", dir=extensions.parent))
    try:
        fresh, old = work / "new", work / "old"
        if installed is None:
            fresh.mkdir()
        else:
            ours = {MANIFEST, *installed.files}
            shutil.copytree(
                target,
                fresh,
                symlinks=True,
                ignore=lambda folder, names: ours & set(names) if Path(folder) == target else (),
            )
        for name, content in contents.items():
            (fresh / name).write_bytes(content)
        (fresh / MANIFEST).write_text(manifest.text(), encoding="utf-8")
        _replace(target, fresh, old)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def uninstall(extensions: Path) -> Removed:
    """Take the extension out. Files in its folder that are not ours stay, and so does the folder then.

    Raises:
        NotInstalled: there is nothing of ours.
        ForeignExtension: the folder is a link.
    """
    target = extensions / EXTENSION
    if target.is_symlink():
        raise ForeignExtension(f"{target} is a link; remove it yourself")
    manifest = read_manifest(target)
    if manifest is None:
        raise NotInstalled(
            f"there is no extension of this package in {target}; name its --folder or --project"
        )
    # The entry point first: Pi must not load a part of the extension.
    for name in sorted(manifest.files, key=lambda name: name != "index.ts"):
        if name == Path(name).name:
            (target / name).unlink(missing_ok=True)
    (target / MANIFEST).unlink()
    left = tuple(sorted(path.name for path in target.iterdir()))
    if not left:
        target.rmdir()
    return Removed(target, left)


def _replace(target: Path, fresh: Path, old: Path) -> None:
    if not target.exists():
        os.rename(fresh, target)
        return
    os.rename(target, old)
    try:
        os.rename(fresh, target)
    except BaseException:
        os.rename(old, target)
        raise


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())
