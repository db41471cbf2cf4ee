/** Pages of the results that a running batch already has. */
import { expect, test } from 'vitest';
import { arrivedLines, arrivedPage } from '../../../gateway/batch/arrived-results.ts';
import type { FileStore } from '../../../gateway/files/file-store.ts';
import type { ChunkState } from '../../../shared/batch/lease-ledger.ts';

interface Sizes {
  commits: number;
  /** Bytes of each response. */
  body: number;
  /** Bytes of each chunk's input. */
  input: number;
}

/** Commits of one line, each of another chunk. */
function pageOf({ commits, body, input }: Sizes) {
  const chunk = (id: number) =>
    ({ id, offset: id * input, bytes: input, first: id * 100, lines: 1 }) as unknown as ChunkState;
  return arrivedPage({
    arrivals: (most) =>
      Array.from({ length: Math.min(most, commits) }, (_, i) => ({ number: i + 1, chunk: i, seq: 1 })),
    resultsOf: (chunkId) => [
      { line: 0, status_code: 200, request_id: `r${chunkId}`, body: JSON.stringify('x'.repeat(body - 2)) },
    ],
    chunk,
  });
}

test.each([
  ['a few small commits', { commits: 3, body: 10, input: 1_000 }, 3, false],
  ['more commits than a page holds', { commits: 1_000, body: 10, input: 1_000 }, 256, true],
  ['a MiB of responses', { commits: 9, body: 400_000, input: 1_000 }, 2, true],
  ['one response that is longer than a page', { commits: 2, body: 2_000_000, input: 1_000 }, 1, true],
  ['chunks whose input is long', { commits: 9, body: 10, input: 4_000_000 }, 2, true],
])('a page has %s', (_, sizes, commits, hasMore) => {
  const page = pageOf(sizes);
  expect([page.commits.length, page.hasMore]).toEqual([commits, hasMore]);
});

test('lines have the names of the input, and their responses as the node wrote them; a chunk is read once', async () => {
  const input = ['{"custom_id":"a"}', '{"custom_id":"b"}', '{"custom_id":"c"}'].join('\n');
  const reads: unknown[] = [];
  const store = {
    read: async (file: string, range: { offset: number; length: number }) => {
      reads.push([file, range]);
      const bytes = new TextEncoder().encode(input).slice(range.offset, range.offset + range.length);
      return (async function* () {
        yield bytes;
      })();
    },
  } as unknown as FileStore;
  const chunk = { id: 0, offset: 0, bytes: input.length, first: 0 };
  const answered = { line: 1, status_code: 200, request_id: 'r', body: '{"n":18446744073709551617}' };
  const failed = {
    line: 0,
    status_code: 0,
    request_id: '',
    body: '',
    error: 'engine_failed' as const,
    why: 'It fell.',
  };
  const commits = [
    { number: 1, chunk, results: [answered] },
    { number: 2, chunk, results: [failed] },
  ];
  const lines = await arrivedLines({ batch: 'batch_1', input: 'file-in', store, commits });
  expect(lines).toEqual([
    '{"id":"batch_req_1000001","custom_id":"b","response":{"status_code":200,"request_id":"r","body":{"n":18446744073709551617}},"error":null}',
    expect.stringMatching(/^\{"id":"batch_req_1000000","custom_id":"a","response":null,.*It fell\./),
  ]);
  expect(reads).toEqual([['file-in', { offset: 0, length: input.length }]]);
});
