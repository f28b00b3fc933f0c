"""`argus-exporter trace`: files of other tools into traces, and what a store has of traces and dumps."""

from __future__ import annotations

import argparse
import io
from datetime import UTC, datetime
from pathlib import Path

from argus_core.config_flags import add_config, read_config
from argus_core.errors import UserError
from argus_core.shared_page import DUMP_BYTES
from argus_core.store import ObjectStore, StoreError, open_store
from argus_core.store.base import read
from argus_core.store.folder import FolderStore
from argus_exporter.config import ExporterConfig
from argus_exporter.errors import ArgusExporterError
from argus_exporter.hangs.dump_files import as_pickle, of_newest_hang
from argus_exporter.replay.reader import read_files
from argus_exporter.traces.encode import encode
from argus_exporter.traces.imported import window_of_recording


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    import_parser = commands.add_parser(
        "import",
        help="turn recordings (as `replay` reads them) into traces",
        description="Reads what `argus-exporter replay` reads, such as PyTorch profiler (Kineto) traces, and "
        "writes Perfetto traces in the form of docs/traces.md.",
    )
    import_parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="recording")
    import_parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="PATH",
        help="file for all ranks in one; an existing folder gets one file a rank, placed as in a store",
    )
    import_parser.add_argument("--job", help="name of the training job (default: as for replay)")
    import_parser.add_argument(
        "--assume-ranks", action="store_true", help="number the files 0, 1, ... in the order given"
    )
    import_parser.set_defaults(run=_import)

    list_parser = commands.add_parser("list", help="list the traces of the configured store")
    add_config(list_parser, ExporterConfig)
    list_parser.add_argument(
        "prefix",
        nargs="?",
        default="",
        metavar="PREFIX",
        help="beginning of the keys, such as JOB/2026-11-21/",
    )
    list_parser.set_defaults(run=_list)

    get_parser = commands.add_parser("get", help="fetch a trace from the configured store")
    add_config(get_parser, ExporterConfig)
    get_parser.add_argument("key", metavar="KEY")
    get_parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    get_parser.set_defaults(run=_get)

    dumps_parser = commands.add_parser(
        "dumps",
        help="fetch what torch's flight recorders said in a hang",
        description="Writes what the flight recorder of each rank said in the newest hang below PREFIX, as "
        "torch's own analyser reads it: FOLDER/RECORDER/rank_N, for `torchfrtrace FOLDER/RECORDER`.",
    )
    add_config(dumps_parser, ExporterConfig)
    dumps_parser.add_argument("prefix", metavar="PREFIX", help="beginning of the keys: JOB/2026-11-21/")
    dumps_parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    dumps_parser.set_defaults(run=_dumps)


def _import(options: argparse.Namespace) -> int:
    recordings = read_files(options.files, job=options.job, assume_ranks=options.assume_ranks)
    windows = [window_of_recording(recording) for recording in recordings]
    for recording in recordings:
        for note in recording.notes:
            print(f"{recording.source}: {note}")
    try:
        if options.out.is_dir():
            store = FolderStore(options.out)
            for window in windows:
                store.put(str(window.key), io.BytesIO(encode(window)))
                print(options.out / str(window.key))
        else:
            # Files of several ranks may be joined end to end: no id of one is used by another.
            options.out.write_bytes(b"".join(map(encode, windows)))
            print(options.out)
    except (OSError, StoreError) as error:
        raise ArgusExporterError(f"cannot write {options.out}: {error}") from error
    return 0


def _store(options: argparse.Namespace) -> ObjectStore:
    return open_store(read_config(ExporterConfig, options).traces.store)


def _list(options: argparse.Namespace) -> int:
    for item in _store(options).list(options.prefix):
        modified = datetime.fromtimestamp(item.modified, UTC)
        print(f"{modified:%Y-%m-%dT%H:%M:%SZ} {item.size:>10} {item.key}")
    return 0


def _get(options: argparse.Namespace) -> int:
    chunks = _store(options).get(options.key)
    try:
        with options.out.open("wb") as target:
            for chunk in chunks:
                target.write(chunk)
    except OSError as error:
        raise ArgusExporterError(f"cannot write {options.out}: {error.strerror}") from error
    return 0


def _dumps(options: argparse.Namespace) -> int:
    store = _store(options)
    keys = of_newest_hang(item.key for item in store.list(options.prefix))
    jobs = sorted({key.training_job for key in keys})
    if len(jobs) != 1:
        what = f"dumps of several jobs: {', '.join(jobs)}" if jobs else "no dump of a flight recorder"
        raise UserError(f"below {options.prefix} in {store.name} there is {what}")
    try:
        for key in keys:
            path = options.out / key.recorder / f"rank_{key.rank}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(as_pickle(str(key), read(store, str(key), DUMP_BYTES)))
            print(path)
    except OSError as error:
        raise ArgusExporterError(f"cannot write {options.out}: {error.strerror}") from error
    return 0
