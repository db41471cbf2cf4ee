/** A peer institution writes receipts, so every text must be readable or refused. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  PEER_PROJECT_PATTERN,
  readableReceipt,
  withoutPayerProject,
  withPayerProject,
} from '../../../shared/usage/readable-receipt.ts';

const PAYER = 'nonce.sealed';
const PROOF = `1.abc.1.0.zz.10.${'m'.repeat(22)}`;
const FACTS = '+{"temperature":0.5}';

test('the project is readable with and without a proof, and the facts stay as they were', () => {
  const receipt = withPayerProject(`${PAYER}\n${FACTS}\norg/m`, 'proj_1');
  for (const sent of [receipt, `${PROOF}\n${receipt}`])
    expect(readableReceipt(sent)).toEqual({ model: 'org/m', project: 'proj_1', untracked: false });
  expect(withoutPayerProject(receipt.split('\n')[1] ?? '')).toBe(FACTS);
  expect(readableReceipt(`${PAYER}\n+\nmodel\nof two lines`)).toEqual({
    model: 'model\nof two lines',
    project: undefined,
    untracked: false,
  });
});

test('a request without a record has no project', () => {
  const receipt = `${PAYER}\n-\norg/m`;
  expect(withPayerProject(receipt, 'proj_1')).toBe(receipt);
  expect(readableReceipt(receipt)).toMatchObject({ project: undefined, untracked: true });
});

test.each(['a b', 'a\nb', 'a\tb', '', 'x'.repeat(65), 'é', '../x'])('%j is not a project', (project) => {
  expect(withPayerProject(`${PAYER}\n${FACTS}\nm`, project)).toBe(`${PAYER}\n${FACTS}\nm`);
  if (!project.includes('\n')) expect(readableReceipt(`${PAYER}\n${FACTS}\t${project}\nm`)?.project).toBeUndefined();
});

test('no text makes it throw, and a project that it returns is short and plain', () => {
  const part = fc.oneof(fc.string(), fc.constantFrom('+', '-', '\n', '\t', PROOF, PAYER, 'proj_1'));
  fc.assert(
    fc.property(fc.array(part), (parts) => {
      const read = readableReceipt(parts.join(''));
      if (read?.project !== undefined) expect(read.project).toMatch(PEER_PROJECT_PATTERN);
    }),
  );
});
