/** `otela seal` prints a node once, also at a gateway with more nodes than it remembers. */
import { expect, it } from 'vitest';
import { onceEach } from '../../../clients/otela/seal-command.ts';

it('forgets the node that was not used for the longest time, and no other', () => {
  const printed: string[] = [];
  const print = onceEach((line) => void printed.push(line), 3);
  for (const line of ['a', 'b', 'c', 'a', 'd', 'a', 'c', 'd', 'b']) print(line);
  expect(printed).toEqual(['a', 'b', 'c', 'd', 'b']);
});
