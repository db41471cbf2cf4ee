"""A Qwen2 of random weights as one GGUF file, with a tokenizer trained on texts: tiny_gguf.py FILE TEXT...

The template is made of simple loops, so that every engine can run it.
"""

import json
import sys

import gguf
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

WIDTH, LAYERS, HEADS, KV_HEADS, CONTEXT = 512, 8, 8, 4, 8192
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

file, *texts = sys.argv[1:]
learnt = Tokenizer(models.BPE())
learnt.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
learnt.decoder = decoders.ByteLevel()
learnt.train(
    texts,
    trainers.BpeTrainer(
        vocab_size=2048,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    ),
)
vocabulary = sorted(learnt.get_vocab().items(), key=lambda pair: pair[1])
tokens = [token for token, _ in vocabulary]
pairs = json.loads(learnt.to_str())["model"]["merges"]
merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in pairs]

random = np.random.default_rng(1)
writer = gguf.GGUFWriter(file, "qwen2")
writer.add_name("tiny")
writer.add_context_length(CONTEXT)
writer.add_embedding_length(WIDTH)
writer.add_block_count(LAYERS)
writer.add_feed_forward_length(2 * WIDTH)
writer.add_head_count(HEADS)
writer.add_head_count_kv(KV_HEADS)
writer.add_rope_freq_base(10_000.0)
writer.add_layer_norm_rms_eps(1e-6)
writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
writer.add_tokenizer_model("gpt2")
writer.add_tokenizer_pre("qwen2")
writer.add_token_list(tokens)
writer.add_token_types(
    [gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL for token in tokens]
)
writer.add_token_merges(merges)
writer.add_eos_token_id(tokens.index("<|im_end|>"))
writer.add_pad_token_id(tokens.index("<|endoftext|>"))
writer.add_add_bos_token(False)
writer.add_chat_template(TEMPLATE)


def matrix(name: str, rows: int, columns: int) -> None:
    writer.add_tensor(name, random.normal(0, 0.05, (rows, columns)).astype(np.float16))


def vector(name: str, length: int, value: float) -> None:
    writer.add_tensor(name, np.full(length, value, np.float32))


KV_WIDTH = WIDTH * KV_HEADS // HEADS
matrix("token_embd.weight", len(tokens), WIDTH)
for layer in range(LAYERS):
    block = f"blk.{layer}"
    vector(f"{block}.attn_norm.weight", WIDTH, 1)
    for part, rows in [("q", WIDTH), ("k", KV_WIDTH), ("v", KV_WIDTH)]:
        matrix(f"{block}.attn_{part}.weight", rows, WIDTH)
        vector(f"{block}.attn_{part}.bias", rows, 0)
    matrix(f"{block}.attn_output.weight", WIDTH, WIDTH)
    vector(f"{block}.ffn_norm.weight", WIDTH, 1)
    matrix(f"{block}.ffn_gate.weight", 2 * WIDTH, WIDTH)
    matrix(f"{block}.ffn_up.weight", 2 * WIDTH, WIDTH)
    matrix(f"{block}.ffn_down.weight", WIDTH, 2 * WIDTH)
vector("output_norm.weight", WIDTH, 1)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
