"""Continues prompts, one a line, with vLLM's offline inference: python generate_texts.py PROMPTS [MODEL]"""

import sys

from vllm import LLM, SamplingParams

SAMPLING = SamplingParams(temperature=0, max_tokens=64)


def main(path, model="facebook/opt-125m"):
    with open(path) as file:
        prompts = [line.strip() for line in file]
    llm = LLM(model=model)
    for output in llm.generate(prompts, SAMPLING):
        print(f"{output.prompt!r} -> {output.outputs[0].text!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
