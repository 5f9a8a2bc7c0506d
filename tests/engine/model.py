"""A language model made on the spot: random weights in a real GGUF file, which real engines load and run.

It speaks clean syllables and never ends by itself, so that an answer has exactly as many tokens as were asked for.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

CONSONANTS, VOWELS = "bcdfghjklmnprstvwxz", "aeiou"
SPECIALS = (("<unk>", gguf.TokenType.UNKNOWN), ("<s>", gguf.TokenType.CONTROL), ("</s>", gguf.TokenType.CONTROL))
NEVER = -30.0
CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


@dataclass(frozen=True, slots=True)
class Shape:
    """How large, and so how slow: more of `width` and `layers` is fewer tokens per second."""

    layers: int = 4
    width: int = 128
    heads: int = 4
    context: int = 32768

    @property
    def feed_forward(self) -> int:
        return 4 * self.width


SMALL = Shape()


def vocabulary() -> tuple[list[str], list[float], list[gguf.TokenType]]:
    """Special tokens, one token per byte, letters and syllables: (texts, scores, kinds)."""
    rows = [(text, 0.0, kind) for text, kind in SPECIALS]
    rows += [(f"<0x{byte:02X}>", 0.0, gguf.TokenType.BYTE) for byte in range(256)]
    words = [f"{c}{v}" for c in CONSONANTS for v in VOWELS] + [f"▁{c}{v}" for c in CONSONANTS for v in VOWELS]
    words += ["▁", *"abcdefghijklmnopqrstuvwxyz"]
    rows += [(word, -float(n), gguf.TokenType.NORMAL) for n, word in enumerate(words)]
    texts, scores, kinds = zip(*rows, strict=True)
    return list(texts), list(scores), list(kinds)


def tensors(shape: Shape, words: int, mute: int, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Random weights whose first hidden dimension is a constant 1 through all layers.

    With it the output row of the first `mute` tokens (specials and bytes) is held at `NEVER`: they are never sampled.
    """
    random = np.random.default_rng(seed)
    width, hidden = shape.width, shape.feed_forward

    def weights(rows: int, columns: int) -> np.ndarray:
        return (random.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)

    embedding = weights(words, width)
    embedding[:, 0] = 1.0
    yield "token_embd.weight", embedding
    for layer in range(shape.layers):
        yield f"blk.{layer}.attn_norm.weight", np.ones(width, np.float32)
        for part in ("attn_q", "attn_k", "attn_v"):
            yield f"blk.{layer}.{part}.weight", weights(width, width)
        attention, down = weights(width, width), weights(width, hidden)
        attention[0, :] = down[0, :] = 0.0  # nothing is added to the constant
        yield f"blk.{layer}.attn_output.weight", attention
        yield f"blk.{layer}.ffn_norm.weight", np.ones(width, np.float32)
        yield f"blk.{layer}.ffn_gate.weight", weights(hidden, width)
        yield f"blk.{layer}.ffn_up.weight", weights(hidden, width)
        yield f"blk.{layer}.ffn_down.weight", down
    yield "output_norm.weight", np.ones(width, np.float32)
    output = weights(words, width)
    output[:, 0] = 0.0
    output[:mute, 0] = NEVER
    yield "output.weight", output


def write(path: Path, shape: Shape, seed: int = 20261130) -> None:
    """Write the model: the same shape and seed give the same file."""
    texts, scores, kinds = vocabulary()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tidegate-test")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_vocab_size(len(texts))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(texts)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(CHAT)
    for name, values in tensors(shape, len(texts), len(SPECIALS) + 256, seed):
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--layers", type=int, default=SMALL.layers)
    parser.add_argument("--width", type=int, default=SMALL.width)
    options = parser.parse_args()
    write(options.path, Shape(layers=options.layers, width=options.width))


if __name__ == "__main__":
    main()
