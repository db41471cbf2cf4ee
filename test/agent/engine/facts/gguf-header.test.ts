import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readGgufHeader } from '../../../../agent/engine/facts/gguf-header.ts';
import { type GgufField, ggufHeader } from '../../../support/gguf-file.ts';
import { scratch } from '../../support/harness.ts';

async function read(bytes: Buffer) {
  const path = join(scratch(), 'model.gguf');
  writeFileSync(path, bytes);
  return readGgufHeader(path);
}

const QWEN: GgufField[] = [
  { name: 'general.architecture', type: 'text', value: 'qwen3' },
  { name: 'general.file_type', type: 'u32', value: 15 },
  { name: 'qwen3.context_length', type: 'u32', value: 40_960 },
  { name: 'qwen3.rope.freq_base', type: 'f32', value: 1e6 },
  { name: 'tokenizer.chat_template', type: 'text', value: 'x'.repeat(10_000) },
  { name: 'tokenizer.ggml.tokens', type: 'texts', value: Array.from({ length: 5_000 }, (_, n) => `word ${n}`) },
  { name: 'tokenizer.ggml.token_type', type: 'i32s', value: Array.from({ length: 100_000 }, () => 1) },
];
const TENSORS = [
  { name: 'token_embd.weight', shape: [4096, 151_936] },
  { name: 'blk.0.attn_q.weight', shape: [4096, 4096] },
  { name: 'output_norm.weight', shape: [4096] },
];

describe('the header of a GGUF file', () => {
  it('tells the format, the context and the number of parameters, behind a vocabulary of any size', async () => {
    expect(await read(ggufHeader(QWEN, TENSORS))).toEqual({
      precision: 'Q4_K_M',
      context: 40_960,
      parameters: 4096 * 151_936 + 4096 * 4096 + 4096,
    });
  });

  it('of one part of several tells no number of parameters', async () => {
    const fields: GgufField[] = [...QWEN, { name: 'split.count', type: 'u16', value: 3 }];
    expect(await read(ggufHeader(fields, TENSORS))).toEqual({ precision: 'Q4_K_M', context: 40_960 });
  });

  it('with a format of next year still tells the rest', async () => {
    const fields: GgufField[] = [{ name: 'general.file_type', type: 'u32', value: 999 }];
    expect(await read(ggufHeader(fields, TENSORS.slice(2)))).toEqual({ parameters: 4096 });
  });
});

describe('a file that is no header', () => {
  const good = ggufHeader(QWEN, TENSORS);
  /** The good header with an unsigned number at `at` replaced. */
  const with64 = (at: number, value: bigint) => {
    const bytes = Buffer.from(good);
    bytes.writeBigUInt64LE(value, at);
    return bytes;
  };

  it.each([
    ['text', Buffer.from('# no model')],
    ['nothing', Buffer.alloc(0)],
    ['the magic alone', Buffer.from('GGUF')],
    ['another version', Buffer.concat([Buffer.from('GGUF\x01\x00\x00\x00', 'latin1'), Buffer.alloc(64)])],
    ['2^63 tensors', with64(8, 2n ** 63n)],
    ['2^40 fields', with64(16, 2n ** 40n)],
    ['a name of 2^62 bytes', with64(24, 2n ** 62n)],
    ['an end within a field', good.subarray(0, 60)],
  ])('%s gives nothing', async (_what, bytes) => {
    expect(await read(bytes)).toBeUndefined();
  });

  it('a pipe gives nothing, at once', async () => {
    const path = join(scratch(), 'model.gguf');
    execFileSync('mkfifo', [path]);
    expect(await readGgufHeader(path)).toBeUndefined();
    expect(await readGgufHeader('/dev/zero')).toBeUndefined();
    expect(await readGgufHeader('/nowhere')).toBeUndefined();
  });

  it('with shapes whose product overflows gives no number of parameters', async () => {
    const tensors = [{ name: 'a', shape: [2 ** 50, 2 ** 50] }];
    expect(await read(ggufHeader(QWEN.slice(0, 3), tensors))).toEqual({ precision: 'Q4_K_M', context: 40_960 });
  });

  it('with any damage gives nothing or facts within bounds, and always ends', async () => {
    const small = ggufHeader(QWEN.slice(0, 4), TENSORS);
    const path = join(scratch(), 'model.gguf');
    const damage = fc.array(fc.tuple(fc.nat(small.length - 1), fc.nat(255)), { minLength: 1, maxLength: 6 });
    await fc.assert(
      fc.asyncProperty(damage, async (changes) => {
        const bytes = Buffer.from(small);
        for (const [at, value] of changes) bytes[at] = value;
        writeFileSync(path, bytes);
        const facts = await readGgufHeader(path);
        for (const value of [facts?.context ?? 1, facts?.parameters ?? 1]) expect(value).toBeGreaterThan(0);
      }),
      { numRuns: 300, seed: 3 },
    );
  });
});
