/** Inventories, workloads and other input files of `otela-plan`. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { otelaPlan } from './small.ts';

/** For the files of all tests in this process, which share this module; removed when the process exits. */
export const folder = mkdtempSync(join(tmpdir(), 'otela-plan-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
let files = 0;

/** Writes `content`, as JSON if it is not a string. @returns its path */
export function file(content: unknown, name = `${++files}.json`): string {
  const path = join(folder, name);
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content));
  return path;
}

export const INVENTORY = file({ pools: [{ id: 'a', gpu: 'A100-80-SXM', nodes: 2, gpus_per_node: 4 }] });
/** A row of a workload. */
export const model = (changes: object = {}) => ({
  model: 'Llama-3.1-8B-Instruct',
  rate: 5,
  input: 400,
  output: 100,
  ...changes,
});
export const workload = (...models: object[]) => file({ models });

/** Runs `otela-plan plan` with these two files. */
export const plan = (inventory: string, load: string, ...more: string[]) =>
  otelaPlan('plan', '--inventory', inventory, '--workload', load, '--duration', '20', ...more);
