/** One batch in a virtual gateway. The test moves the time of the gateway. */
import { afterAll, beforeEach } from 'vitest';
import type { GrantedLease } from '../../../shared/batch/granted-lease.ts';
import { endAll } from '../../support/processes.ts';
import { answerOf, lineOf, specOf, VirtualGateway } from '../../support/virtual-gateway.ts';

export const ID = 'batch_000000000000000000000000';
export const INPUT = 'file-000000000000000000000000';
export const DAY_MS = 86_400_000;
/** The gateway of the current test. */
export let gateway: VirtualGateway;

/** Call once, at the top of a file. */
export function openVirtualGateways(): void {
  beforeEach(async () => {
    gateway = await VirtualGateway.open();
  });
  afterAll(endAll);
}

export const batch = () => gateway.batch(ID).object;
export const shown = () => {
  const object = batch().show();
  if (object === null) throw new Error('no batch');
  return object;
};
export async function begun(lines: number, change: Parameters<typeof specOf>[1] = {}): Promise<void> {
  const bytes = await gateway.input(
    INPUT,
    Array.from({ length: lines }, (_, i) => lineOf(`line-${i}`)),
  );
  await batch().start(specOf(ID, { inputBytes: bytes, ...change }));
  await gateway.settle(ID);
}
export function lease(node = 'node'): GrantedLease {
  const granted = batch().admission() === null ? null : batch().grant(node, [0], undefined);
  if (granted === null) throw new Error(`nothing is leased: ${JSON.stringify(shown())}`);
  return granted;
}
export const refOf = ({ chunk, epoch }: GrantedLease, node = 'node') => ({ node, chunk, epoch });
export const commit = (granted: GrantedLease, lines: readonly number[], tokens?: number) =>
  batch().commit(
    refOf(granted),
    lines.map((line) => answerOf(line, tokens)),
    'provider',
  );
export async function turn(ms: number): Promise<void> {
  gateway.now += ms;
  await gateway.settle(ID);
}
export const parsed = async (file: string | null) => (await gateway.text(file)).map((line) => JSON.parse(line));
