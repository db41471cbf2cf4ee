"""A Whisper of random weights in whisper.cpp's own format: tiny_whisper.py FILE.

Its transcripts are nonsense, but the same for the same audio.
"""

import struct
import sys

import numpy as np

VOCABULARY, WORDS, WIDTH, HEADS, LAYERS = 51864, 50257, 64, 1, 4
AUDIO_CONTEXT, TEXT_CONTEXT, MELS, SPECTRUM = 1500, 448, 80, 201
F32, F16 = 0, 1

random = np.random.default_rng(1)
file = open(sys.argv[1], "wb")


def numbers(*values: int) -> None:
    file.write(struct.pack(f"<{len(values)}i", *values))


def tensor(name: str, values: np.ndarray, kind: int = F32) -> None:
    numbers(values.ndim, len(name), kind, *reversed(values.shape))
    file.write(name.encode())
    file.write(values.astype(np.float16 if kind == F16 else np.float32).tobytes())


def normal(name: str, *shape: int, kind: int = F16) -> None:
    tensor(name, random.normal(0, 0.2, shape), kind)


def norm(name: str) -> None:
    tensor(f"{name}.weight", np.ones(WIDTH))
    tensor(f"{name}.bias", np.zeros(WIDTH))


def linear(name: str, rows: int, columns: int, bias: bool = True) -> None:
    normal(f"{name}.weight", rows, columns)
    if bias:
        tensor(f"{name}.bias", np.zeros(rows))


def attention(name: str) -> None:
    norm(f"{name}_ln")
    for part in ["query", "key", "value", "out"]:
        linear(f"{name}.{part}", WIDTH, WIDTH, part != "key")


def block(name: str, *attentions: str) -> None:
    for one in attentions:
        attention(f"{name}.{one}")
    norm(f"{name}.mlp_ln")
    linear(f"{name}.mlp.0", 4 * WIDTH, WIDTH)
    linear(f"{name}.mlp.2", WIDTH, 4 * WIDTH)


numbers(0x67676D6C, VOCABULARY, AUDIO_CONTEXT, WIDTH, HEADS, LAYERS, TEXT_CONTEXT, WIDTH, HEADS, LAYERS, MELS, F16)
numbers(MELS, SPECTRUM)
file.write(random.uniform(0, 0.02, (MELS, SPECTRUM)).astype(np.float32).tobytes())
numbers(WORDS)
for word in range(WORDS):
    # whisper.cpp requires a token for the space.
    text = f" w{word}".encode() if word > 0 else b" "
    numbers(len(text))
    file.write(text)
normal("encoder.positional_embedding", AUDIO_CONTEXT, WIDTH, kind=F32)
normal("encoder.conv1.weight", WIDTH, MELS, 3)
tensor("encoder.conv1.bias", np.zeros((WIDTH, 1)))
normal("encoder.conv2.weight", WIDTH, WIDTH, 3)
tensor("encoder.conv2.bias", np.zeros((WIDTH, 1)))
for layer in range(LAYERS):
    block(f"encoder.blocks.{layer}", "attn")
norm("encoder.ln_post")
normal("decoder.positional_embedding", TEXT_CONTEXT, WIDTH, kind=F32)
normal("decoder.token_embedding.weight", VOCABULARY, WIDTH)
for layer in range(LAYERS):
    block(f"decoder.blocks.{layer}", "attn", "cross_attn")
norm("decoder.ln")
file.close()
