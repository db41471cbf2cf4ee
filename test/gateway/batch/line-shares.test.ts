import { expect, test } from 'vitest';
import { LineShares } from '../../../gateway/batch/leases/line-shares.ts';
import { LeaseLedger } from '../../../shared/batch/lease-ledger.ts';

const range = (lines: number, first: number) => ({ first, offset: first, bytes: 10, lines, demands: 0, prefix: 0 });
const ledgerOf = (...sizes: number[]) =>
  new LeaseLedger(LeaseLedger.chunksOf(sizes.map((lines, i) => range(lines, i * 100))));
const grant = (ledger: LeaseLedger, node: string, most: number) =>
  ledger.grant(node, 0, 60_000, () => true, undefined, most)?.open.length;

test('idle nodes get equal parts of the lines', () => {
  const [shares, ledger] = [new LineShares(), ledgerOf(100, 100)];
  shares.set(8);
  const parts = Array.from({ length: 8 }, (_, i) => {
    const part = grant(ledger, `node-${i}`, shares.most(ledger, 0));
    shares.granted();
    return part;
  });
  expect(parts).toEqual([25, 25, 25, 25, 25, 25, 25, 25]);
  expect(ledger.waiting).toBe(0);
});

test('a node that asks gets its share, although the queue knows no idle node', () => {
  const [shares, ledger] = [new LineShares(), ledgerOf(100, 100)];
  expect(shares.most(ledger, 0)).toBe(200);
  for (const node of ['a', 'b', 'c']) grant(ledger, node, 40);
  expect(shares.most(ledger, 0)).toBe(50);
});

test('the lines of all chunks are counted at most once a second', () => {
  let counted = 0;
  const ledger = {
    open: 2,
    get waiting() {
      counted += 1;
      return 0;
    },
  } as LeaseLedger;
  const shares = new LineShares();
  expect([0, 1, 999, 1_000].map((at) => shares.isDue(ledger, at))).toEqual([true, false, false, true]);
  expect(counted).toBe(2);
});

test('nodes keep their share while others are idle and no line is free', () => {
  const [shares, ledger] = [new LineShares(), ledgerOf(100)];
  shares.set(3);
  expect(shares.keep(ledger, 0)).toBeUndefined();
  grant(ledger, 'a', Number.POSITIVE_INFINITY);
  expect(shares.keep(ledger, 0)).toBe(25);
  shares.set(0);
  expect(shares.keep(ledger, 0)).toBeUndefined();
});

test('a lease has at least the lines of a second', () => {
  const [shares, ledger] = [new LineShares(), ledgerOf(100)];
  shares.set(99);
  grant(ledger, 'a', Number.POSITIVE_INFINITY);
  expect([shares.most(ledger, 0), shares.most(ledger, 40.5)]).toEqual([1, 41]);
});

test('the queue is asked for idle nodes at most once a second, and only if all lines are leased', () => {
  const [shares, ledger] = [new LineShares(), ledgerOf(2)];
  expect(shares.isDue(ledger, 0)).toBe(false);
  grant(ledger, 'a', 2);
  expect([999, 1_000, 1_999, 2_000].map((at) => shares.isDue(ledger, at))).toEqual([false, true, false, true]);
});
