import { describe, expect, it } from 'vitest';
import type { ServedModel } from '../../../shared/lattice/node-record.ts';
import { differingFacts, modelDetails, replicaKinds } from '../../../shared/routing/replica-kinds.ts';
import { parseRequirements, satisfies } from '../../../shared/routing/requirements.ts';
import { entry } from './support.ts';

const replica = (more: Partial<ServedModel> = {}): ServedModel => ({ id: 'org/m', state: 'ready', ...more });

describe('kinds of replicas', () => {
  it('are told apart by precision and context, the most frequent first, whatever a precision is called', () => {
    const replicas = [
      replica({ quantization: 'fp8', context_length: 4096, engine: 'vllm', engine_version: '0.32.0' }),
      replica({ quantization: 'bfloat16', context_length: 4096, engine: 'vllm' }),
      replica({ quantization: 'BF16', context_length: 4096, engine: 'sglang', engine_version: '0.5.17' }),
    ];
    expect(replicaKinds(replicas)).toEqual([
      {
        ...{ precision: 'bf16', context_length: 4096, nodes: 2, engines: ['vllm', 'sglang 0.5.17'] },
        require: 'precision=bf16; context=4096',
      },
      {
        precision: 'fp8',
        context_length: 4096,
        nodes: 1,
        engines: ['vllm 0.32.0'],
        require: 'precision=fp8; context=4096',
      },
    ]);
    expect(differingFacts(replicaKinds(replicas))).toEqual(['precision']);
  });

  it('do not differ in a fact that only some publish', () => {
    const kinds = replicaKinds([replica({ quantization: 'fp8' }), replica(), replica({ context_length: 9 })]);
    expect(kinds).toHaveLength(3);
    expect(differingFacts(kinds)).toEqual([]);
    expect(kinds.map(({ require }) => require).sort()).toEqual(['', 'context=9', 'precision=fp8']);
  });

  it('have requirements that the nodes of this kind satisfy, and no others', () => {
    const models = [
      replica({ quantization: 'Q4_K_M', context_length: 8192 }),
      replica({ quantization: 'q8_0', context_length: 8192 }),
      replica({ quantization: 'bfloat16', context_length: 16_384 }),
    ];
    for (const { require } of replicaKinds(models)) {
      const requirements = parseRequirements(require);
      const meets = models.filter((model) => satisfies({ ...entry('a'), models: [model] }, requirements, 'org/m', 0));
      expect(meets).toHaveLength(1);
    }
  });

  it('are bounded, and name nothing that a header could not have', () => {
    const replicas = Array.from({ length: 100 }, (_, n) => replica({ quantization: `x;${n},y` }));
    const kinds = replicaKinds(replicas);
    expect(kinds.length).toBeLessThanOrEqual(16);
    for (const { require } of kinds) expect(require).toBe('');
  });
});

describe('the details of a model', () => {
  it('have the least context, and only the input that every replica reads', () => {
    const details = modelDetails('org/m', [
      replica({
        context_length: 8192,
        input_modalities: ['text', 'image'],
        output_modalities: ['text'],
        parameters: 7,
      }),
      replica({ context_length: 4096, input_modalities: ['text'], output_modalities: ['text'], tool_parser: 'hermes' }),
      replica(),
    ]);
    expect(details).toMatchObject({
      ...{ max_model_len: 4096, context_length: 4096, max_input_tokens: 4096, display_name: 'm' },
      architecture: { input_modalities: ['text'], output_modalities: ['text'] },
      x_otela: { parameters: 7, tool_parsers: ['hermes'], differ: ['context_length'] },
    });
  });

  it('have nothing that no replica publishes', () => {
    expect(modelDetails('m', [replica()])).toEqual({
      display_name: 'm',
      x_otela: { kinds: [{ nodes: 1, engines: [], require: '' }] },
    });
    expect(modelDetails('/models/Qwen3-8B/', []).display_name).toBe('Qwen3-8B');
  });
});
