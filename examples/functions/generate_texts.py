"""Continues prompts, one a line, with vLLM's offline inference: python generate_texts.py PROMPTS [MODEL]"""

import sys

import opentela
from vllm import LLM, SamplingParams

SAMPLING = SamplingParams(temperature=0, max_tokens=64)


def load(model):
    return LLM(model=model)


@opentela.function(load=load, batch_size=100)
def generate(llm, prompts):
    return [f"{output.prompt!r} -> {output.outputs[0].text!r}" for output in llm.generate(prompts, SAMPLING)]


def main(path, model="facebook/opt-125m"):
    with open(path) as file:
        prompts = [line.strip() for line in file]
    for text in generate.with_context(model=model).map(prompts):
        print(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
