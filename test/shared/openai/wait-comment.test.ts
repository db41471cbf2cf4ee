import { expect, test } from 'vitest';
import { readWaitComment, type WaitReason, waitComment } from '../../../shared/openai/wait-comment.ts';

test.each<[WaitReason, string]>([
  [{ reason: 'queued' }, ': otela queued\n\n'],
  [{ reason: 'queued', position: 1 }, ': otela queued 1st\n\n'],
  [{ reason: 'queued', position: 3 }, ': otela queued 3rd\n\n'],
  [{ reason: 'queued', position: 11 }, ': otela queued 11th\n\n'],
  [{ reason: 'queued', position: 122 }, ': otela queued 122nd\n\n'],
  [{ reason: 'loading' }, ': otela loading\n\n'],
  [{ reason: 'loading', percent: 60 }, ': otela loading 60%\n\n'],
  [{ reason: 'loading', percent: 100 }, ': otela loading 100%\n\n'],
  [{ reason: 'starting' }, ': otela starting\n\n'],
])('%j is said as %j and read back', (wait, comment) => {
  expect(waitComment(wait)).toBe(comment);
  expect(readWaitComment(comment.slice(1))).toEqual(wait);
});

test.each([
  'ping',
  'otela',
  'otela node=abc attempts=1',
  'otela queued third',
  'otela loading 101%',
  'otela queued 0th',
])('%j is no reason for a wait', (text) => {
  expect(readWaitComment(text)).toBeUndefined();
});
