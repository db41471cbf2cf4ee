/** Batches with more output than space, and nodes that report late. The test moves the time. */
import { stat } from 'node:fs/promises';
import { afterAll, beforeEach, expect, it } from 'vitest';
import type { GrantedLease } from '../../../shared/batch/granted-lease.ts';
import { endAll } from '../../support/processes.ts';
import { answerOf, lineOf, specOf, VirtualGateway } from '../../support/virtual-gateway.ts';

const ID = 'batch_000000000000000000000000';
const INPUT = 'file-000000000000000000000000';
const LINES = 12;
let gateway: VirtualGateway;

beforeEach(async () => {
  gateway = await VirtualGateway.open();
});
afterAll(endAll);

const batch = () => gateway.batch(ID).object;
async function begun(lines: number): Promise<void> {
  const named = Array.from({ length: lines }, (_, i) => lineOf(`line-${i}`));
  const inputBytes = await gateway.input(INPUT, named);
  await batch().start(specOf(ID, { inputFileId: INPUT, inputBytes }));
  await gateway.settle(ID);
}
async function turn(ms: number): Promise<void> {
  gateway.now += ms;
  await gateway.settle(ID);
}
function leased(node: string) {
  const granted: GrantedLease | null = batch().grant(node, [0], undefined);
  if (granted === null) throw new Error('nothing is leased');
  return { node, chunk: granted.chunk, epoch: granted.epoch };
}
const parsed = async (file: string | null) => (await gateway.text(file)).map((line) => JSON.parse(line));

it.each([
  // The limit, in bytes, has room for some lines: a response of 78 bytes takes a line of 200.
  ['the answers of some lines', 1_300],
  ['the answers, and not what stands around them', 78 * LINES],
])('a batch for whose files there is room for %s ends: the other lines are in the error file', async (_, most) => {
  gateway.outputMaxBytes = most;
  await begun(LINES);
  const lines = Array.from({ length: LINES }, (_, line) => answerOf(line));
  await batch().commit(leased('node'), lines, 'lab');
  await turn(10_000);
  const shown = batch().show();
  expect(shown?.status).toBe('completed');
  const { output_file_id: output = null, error_file_id: errors = null, request_counts: counts } = shown ?? {};
  expect((await stat(gateway.path(output ?? ''))).size).toBeLessThanOrEqual(most);
  const [good, bad] = [await parsed(output), await parsed(errors)];
  expect(good.length).toBeGreaterThan(0);
  expect(counts).toEqual({ total: LINES, completed: good.length, failed: bad.length });
  expect(new Set([...good, ...bad].map(({ custom_id: id }) => id)).size).toBe(LINES);
  expect(new Set(bad.map(({ error }) => error.code))).toEqual(new Set(['response_too_large']));
});

it('a failure that a node tells whose lease has ended is no result: the line runs where it is now', async () => {
  await begun(1);
  const lost = leased('lost');
  await gateway.pass(ID, 61_000);
  const other = leased('other');
  const failed = { line: 0, status_code: 500, request_id: 'r', body: 'the engine is gone' };
  await batch().commit(lost, [failed], 'lab');
  expect(batch().show()?.request_counts).toEqual({ total: 1, completed: 0, failed: 0 });
  await batch().commit(other, [answerOf(0)], 'lab');
  await turn(10_000);
  expect(batch().show()).toMatchObject({ status: 'completed', request_counts: { completed: 1, failed: 0 } });
});

it('lines of two demands in turn are read together when the files are written: a runtime counts what its programs ask', async () => {
  const wants = ['', '"metadata":{"otela_require":"tier=stable"},'];
  const lines = Array.from({ length: 3_000 }, (_, i) =>
    lineOf(`line-${i}`).replace('"messages"', `${wants[i % 2]}"messages"`),
  );
  const inputBytes = await gateway.input(INPUT, lines);
  await batch().start(specOf(ID, { inputFileId: INPUT, inputBytes }));
  await gateway.settle(ID);
  const { read } = gateway.store;
  let reads = 0;
  gateway.store.read = (...args) => {
    reads++;
    return read.apply(gateway.store, args);
  };
  const granted = batch().grant('node', [0, 1], undefined);
  if (granted === null) throw new Error('nothing is leased');
  const ref = { node: 'node', chunk: granted.chunk, epoch: granted.epoch };
  await batch().commit(ref, [answerOf(0)], 'lab');
  await batch().cancel();
  await turn(31_000);
  const { output_file_id: output = null, error_file_id: errors = null, status } = batch().show() ?? {};
  expect([status, reads]).toEqual(['cancelled', 2]);
  const ids = [...(await parsed(output)), ...(await parsed(errors))].map(({ custom_id: id }) => id);
  expect(ids).toEqual(Array.from({ length: 3_000 }, (_, i) => `line-${i}`));
});
