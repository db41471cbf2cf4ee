"""A Qwen2 of random weights, with a tokenizer trained on texts and a chat template: tiny_model.py DIRECTORY TEXT...

Environment: WIDTH (default 128) and LAYERS (default 2) of the model: half a million weights by default.
"""

import os
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

directory, *texts = sys.argv[1:]
width = int(os.environ.get("WIDTH", "128"))
learnt = Tokenizer(models.BPE())
learnt.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
learnt.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=2048,
    special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
)
learnt.train(texts, trainer)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=learnt, eos_token="<|im_end|>", pad_token="<|endoftext|>")
tokenizer.chat_template = TEMPLATE
tokenizer.save_pretrained(directory)

torch.manual_seed(1)
config = Qwen2Config(
    vocab_size=len(tokenizer),
    hidden_size=width,
    intermediate_size=2 * width,
    num_hidden_layers=int(os.environ.get("LAYERS", "2")),
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=8192,
    eos_token_id=tokenizer.eos_token_id,
    bos_token_id=None,
    tie_word_embeddings=True,
    # With the usual 0.02 an untrained model repeats one word forever.
    initializer_range=0.2,
)
Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(directory)
