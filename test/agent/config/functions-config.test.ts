import { expect, it } from 'vitest';
import { functionsConfig } from '../../../agent/config/functions-config.ts';
import { usableMemoryMib } from '../../../agent/host/usable-memory.ts';
import { settingsOf } from '../support/settings.ts';

const functionMemory = (flags: Record<string, string[]>, variables: Record<string, string> = {}) =>
  functionsConfig(settingsOf({ 'allow-functions': ['all'], ...flags }, variables))?.limits.memoryBytes;

it('a function may use half of the memory of the job, and never more than all of it', () => {
  const job = { SLURM_MEM_PER_NODE: '64' };
  expect(functionMemory({}, job)).toBe(32 * 2 ** 20);
  expect(functionMemory({ 'functions-memory': ['50'] }, job)).toBe(50 * 2 ** 20);
  expect(functionMemory({ 'functions-memory': ['1000'] }, job)).toBe(64 * 2 ** 20);
  expect(functionMemory({ 'functions-memory': ['1000000'] })).toBe(usableMemoryMib({}) * 2 ** 20);
});
