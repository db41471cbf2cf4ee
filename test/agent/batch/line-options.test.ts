import { describe, expect, it } from 'vitest';
import { readLineOptions } from '../../../agent/batch/line-options.ts';

const priority = (command: string) => readLineOptions(command.split(' '), undefined, true).priority;

describe('the priority of a line', () => {
  it('is higher than a request’s at vLLM, where lower goes first, and only where its scheduler knows any', () => {
    expect(priority('vllm serve NAME --scheduling-policy priority')).toBeGreaterThan(0);
    expect(priority('python -m vllm.entrypoints.openai.api_server --scheduling-policy=priority')).toBeGreaterThan(0);
    expect(priority('vllm serve NAME')).toBeUndefined();
    expect(priority('vllm serve NAME --scheduling-policy fcfs')).toBeUndefined();
  });

  it('is lower than a request’s at SGLang, where higher goes first, and turns with its flag', () => {
    const sglang = 'python -m sglang.launch_server --enable-priority-scheduling --default-priority-value 5';
    expect(priority(sglang)).toBeLessThan(5);
    expect(priority(`${sglang} --schedule-low-priority-values-first`)).toBeGreaterThan(5);
  });

  it('is none at an SGLang that gives requests none: these would go behind every line', () => {
    expect(priority('python -m sglang.launch_server --enable-priority-scheduling')).toBeUndefined();
    expect(priority('python -m sglang.launch_server --default-priority-value 5')).toBeUndefined();
  });
});

it('an engine’s slots are what its command says, and no more than the agent may give it', () => {
  expect(readLineOptions(['vllm', 'serve', 'NAME', '--max-num-seqs', '64'], undefined, true).slots).toBe(64);
  expect(readLineOptions(['python', '-m', 'sglang.launch_server', '--max-running-requests=32'], 16, true).slots).toBe(
    16,
  );
  expect(readLineOptions(undefined, undefined, true).slots).toBe(256);
});

it('an engine that does not tell its queue gets few lines: those that wait in it would be taken for its failures', () => {
  expect(readLineOptions(undefined, undefined, false).slots).toBe(8);
  expect(readLineOptions(['llama-server', '-m', 'x.gguf', '--parallel', '16'], undefined, false).slots).toBe(16);
  expect(readLineOptions(['ollama', 'serve'], 32, false).slots).toBe(32);
});
