import { expect, test } from 'vitest';
import { NodeIndex } from '../../../shared/routing/node-index.ts';
import { hasCompatible } from '../../../shared/routing/revision-match.ts';
import { entry } from './support.ts';

test.each<[a: object, b: object, alike: boolean]>([
  [{}, {}, true],
  [{}, { quantization: 'bfloat16' }, true], // an agent of an earlier version
  [{ quantization: 'bf16' }, {}, true],
  [{}, { quantization: 'fp8' }, false],
  [{ quantization: 'awq' }, {}, false],
  [{ quantization: 'fp8' }, { quantization: 'fp8' }, true],
  [{ quantization: 'fp8' }, { quantization: 'awq' }, false],
  [{ revision: 'a' }, {}, false],
  [{ revision: 'a' }, { revision: 'a', quantization: 'bf16' }, true],
])('a stream of a node with %j continues at one with %j: %s', (a, b, alike) => {
  const model = { id: 'm', state: 'ready' as const };
  const index = new NodeIndex();
  index.put(entry('b', { models: [{ ...model, ...b }] }));
  expect(hasCompatible(index.model('m'), 'm', { ...model, ...a }, () => true)).toBe(alike);
});
