"""Writes a draft model for benchmarks: the first layers of a GGUF model, same vocabulary.

    python benchmarks/layered_draft.py MODEL.gguf .models/draft-2-layers.gguf --layers 2

Untrained as a draft it is accepted rarely; with the server's synthetic acceptance
(`--spec-synth-rates`) it shows the true cost of drafting and verifying. Needs `pip install gguf`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def is_kept(tensor: str, layers: int) -> bool:
    """True for the tensors of the first layers and those outside every layer."""
    head, _, rest = tensor.partition(".")
    return head != "blk" or int(rest.partition(".")[0]) < layers


def write_draft(model: Path, draft: Path, layers: int) -> int:
    """Copy the model with `layers` layers; returns the number of tensors kept."""
    import gguf

    reader = gguf.GGUFReader(model)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(draft, architecture)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            _copy_field(writer, name, field, layers if name.endswith(".block_count") else None)
    kept = [tensor for tensor in reader.tensors if is_kept(tensor.name, layers)]
    for tensor in kept:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return len(kept)


def _copy_field(writer: Any, name: str, field: Any, value: int | None) -> None:
    kind, *inner = field.types
    writer.add_key_value(
        name, field.contents() if value is None else value, kind, inner[-1] if inner else None
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Write one draft."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args(argv)
    kept = write_draft(options.model, options.draft, options.layers)
    print(f"{options.draft}: {kept} tensors, {options.layers} layers")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
