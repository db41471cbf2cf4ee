/**
 * `npm run soak -- limits`: a million random histories of requests and limits against plain arithmetic. `--histories N`
 * changes the number. The first disagreement ends it, with the shortest history that shows it.
 */
import { parseArgs } from 'node:util';
import fc from 'fast-check';
import { agrees } from '../gateway/accounts/limit-model.ts';

const { values } = parseArgs({ options: { histories: { type: 'string', default: '1000000' } } });
const histories = Number(values.histories);
let steps = 0;
const counted = agrees((all) => {
  steps += all.length;
});
fc.assert(counted, { numRuns: histories });
console.log(`${histories} histories with ${steps} steps: the limiter granted and counted exactly what the list did`);
