import { describe, expect, it } from 'vitest';
import { shellWrapped } from '../../../agent/engine/engine-command.ts';
import { announcedModels } from '../../../agent/engine/models-in-command.ts';

const names = (line: string) => announcedModels(line.split(' ')).map(({ id }) => id);

describe('what an engine will serve, by its command line', () => {
  it.each([
    ['vllm serve org/model --port 8001', ['org/model']],
    ['/opt/venv/bin/vllm serve --port 8001 --model org/model', ['org/model']],
    ['python -m vllm.entrypoints.openai.api_server --model=org/model', ['org/model']],
    ['vllm serve /models/llama --served-model-name llama llama-3 --max-model-len 4096', ['llama', 'llama-3']],
    ['vllm serve /models/llama --served-model-name=llama', ['llama']],
    ['python -m sglang.launch_server --model-path org/model --port 30000', ['org/model']],
    ['sglang serve --model-path /scratch/m --served-model-name org/model', ['org/model']],
    ['vllm serve --port 8001 org/model', ['org/model']],
    ['vllm serve --port=8001 org/model --dtype auto', ['org/model']],
    ['vllm serve --model-tag org/model', ['org/model']],
    ['vllm serve org/model --middleware a b', ['org/model']],
    ['apptainer exec x.sif vllm serve org/model', ['org/model']],
    ['llama-server -m /models/q.gguf --alias org/model', ['org/model']],
    ['lmdeploy serve api_server org/model --server-port 23333', ['org/model']],
    ['lmdeploy serve api_server /models/m --model-name org/model', ['org/model']],
    ['text-generation-launcher --model-id /models/m --served-model-name org/model', ['org/model']],
  ])('%s', (line, wanted) => {
    expect(names(line)).toEqual(wanted);
    expect(announcedModels(line.split(' ')).every(({ state }) => state === 'loading')).toBe(true);
  });

  it('is read out of a line for a shell', () => {
    const command = shellWrapped(["vllm serve 'org/model' --port 8001"]);
    expect(announcedModels(command)).toEqual([{ id: 'org/model', state: 'loading' }]);
  });

  it.each([
    'python serve.py --model org/model',
    'vllm serve $MODEL',
    'vllm serve --port 8001',
    'vllm serve --middleware a b c',
    'vllm serve --enforce-eager org/model',
    'vllm',
    'llama-server -m /models/q.gguf',
    'ollama serve',
    'ollama run org/model',
    'lmdeploy lite auto_awq org/model',
    'transformers serve org/model',
  ])('is not told by: %s', (line) => expect(names(line)).toEqual([]));

  it('is nothing without a command', () => expect(announcedModels(undefined)).toEqual([]));
});
