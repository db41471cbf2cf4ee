/**
 * A token's path through gateway and agent while that agent sends weights to a neighbor as fast as it can, compared
 * with no transfer. Real processes: gateway, an agent with a mock engine in a separate process, a second agent that
 * pulls `--mib 512` repeatedly. Alternating, `--rounds 3` of `--seconds 8` each. Prints the time between two tokens of
 * one stream, whose engine writes 50 a second. `--rate`: the sender's --weights-rate. `--apart 'nice -n 19'`: the
 * sender is a separate process, started with that. All share this machine's processors, which on a small one are the
 * limit.
 */
import { parseArgs } from 'node:util';
import { endAll } from '../../test/support/processes.ts';
import { tokensWhileSending } from './tokens-while-sending.ts';

const { values } = parseArgs({
  options: {
    mib: { type: 'string', default: '512' },
    rounds: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '8' },
    rate: { type: 'string' },
    apart: { type: 'string' },
  },
});
const { mib, rounds, seconds, rate, apart } = values;
const plan = { mib: Number(mib), rounds: Number(rounds), seconds: Number(seconds), rate, apart };
console.log(JSON.stringify({ ...(await tokensWhileSending(plan)), rate }));
await endAll();
process.exit(0);
