"""The model in the forms that readers of GGUF want: `python -m bench.engine_peers.gguf_files`.

Decides what they are made of: SmolLM2's own Q4_1 file, from which docmill's conversion comes too,
and from its weights one in bf16 and one in Q8_0, so that every engine computes the same model. Runs
in docmill's environment. May import gguf.
"""

import argparse
import shutil
from pathlib import Path
from typing import Any

from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType
from gguf.quants import dequantize, quantize

Q4_1 = "smollm2-q4_1.gguf"
#: Files made from it: the format of their matrices, and the number llama.cpp has for such files.
_MADE = {
    "smollm2-bf16.gguf": (GGMLQuantizationType.BF16, LlamaFileType.MOSTLY_BF16),
    "smollm2-q8_0.gguf": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
}
_WRITTEN_BY_THE_WRITER = ("GGUF.", "general.architecture", "general.file_type")


def make(source: Path, folder: Path) -> None:
    """Make the files in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (kind, file_type) in _MADE.items():
        rewrite(source, folder / name, kind, file_type)
    shutil.copyfile(source, folder / Q4_1)


def rewrite(source: Path, target: Path, kind: Any, file_type: Any) -> None:
    """Write the model with its matrices in another format; vectors stay in float32."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if not name.startswith(_WRITTEN_BY_THE_WRITER):
            part = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], part)
    writer.add_file_type(file_type)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        if values.ndim > 1:
            writer.add_tensor(tensor.name, quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Make the files."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine_peers.gguf_files")
    parser.add_argument("source", type=Path, help="SmolLM2's Q4_1 file")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    make(options.source, options.folder)


if __name__ == "__main__":
    main()
