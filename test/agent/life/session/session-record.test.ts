/** Hand-written cases: nothing that the agent finds on a machine may give a record that a gateway cannot read. */
import { expect, it } from 'vitest';
import { RecordKeeper, type SessionRecord } from '../../../../agent/life/session/session-record.ts';

function kept(vramMib: number) {
  const lines: string[] = [];
  const gpu = { class: 'H100', name: 'NVIDIA H100', vram_mib: vramMib, count: 1 };
  const word: SessionRecord = {
    state: 'JOIN',
    version: 1,
    tier: 'stable',
    labels: {},
    models: [],
    hardware: { gpus: [gpu], cpus: 1, memory_mib: 1 },
    addresses: [],
    agent_version: '1',
  };
  const keeper = new RecordKeeper(
    word,
    async () => {},
    (line) => lines.push(line),
  );
  return { keeper, lines };
}

it('a record that no gateway can read is told in the log, once for each reason', () => {
  const { keeper, lines } = kept(-1);
  expect(lines).toEqual([
    expect.stringMatching(/no gateway can parse this node's registry record.*hardware\.gpus\.0\.vram_mib/),
  ]);
  keeper.change({ state: 'SERVING' });
  expect(lines).toHaveLength(1);
  keeper.change({ models: [{ id: '', state: 'ready' }] });
  expect(lines[1]).toContain('models.0.id');
});

it('a record that gateways read is not talked about', () => {
  const { keeper, lines } = kept(81_559);
  keeper.change({ models: [{ id: 'm', state: 'ready' }] });
  expect(lines).toEqual([]);
});

it('a record that is too long loses facts about its last models before it loses a model', () => {
  const { keeper, lines } = kept(81_559);
  const facts = {
    ...{ context_length: 8192, quantization: 'Q4_K_M', engine: 'ollama', engine_version: '0.12.3' },
    ...{ parameters: 8_190_735_360, input_modalities: ['text' as const], output_modalities: ['text' as const] },
    ...{ tool_parser: 'builtin', reasoning_parser: 'builtin', max_batch: 64, kv_tokens: 436_528 },
  };
  const models = Array.from({ length: 30 }, (_, n) => ({ id: `model-${n}`, state: 'ready' as const, ...facts }));
  keeper.change({ models });
  const { models: shown } = keeper.record;
  expect(shown).toHaveLength(30);
  expect(shown[0]).toEqual(models[0]);
  expect(shown[29]).toEqual({
    ...{ id: 'model-29', state: 'ready', context_length: 8192, quantization: 'Q4_K_M', engine: 'ollama' },
  });
  expect(lines).toEqual([]);
});
