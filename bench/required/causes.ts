/** What limits a figure that misses its requirement. Shown only for rows that miss it. */
import { isMet, type Required } from './row.ts';

const COLD =
  'code that runs cold: a lone request takes gateway and agent several times the processor time of one among 64, and waking idle cores costs nothing ([measured](#wake-ups-or-cold-code))';
const OWN_SOURCE_TEXT =
  'Node alone has 46 MiB: 37 MiB are its program text, and all Node processes of a host share it; the rest is the heap';

const CAUSES: readonly (readonly [figure: RegExp, cause: string])[] = [
  [
    /node on the gateway/,
    `such a node is treated as a remote one, because gateway and agent in one process were refuted; ${COLD}`,
  ],
  [/^added to the median/, COLD],
  [
    /÷ vllm-router/,
    'vllm-router is one process in Rust without keys, limits, metering and tunnel: a request passes one process instead of two',
  ],
  [
    /^requests per second at/,
    'two processes in Node, one of them with keys, limits and metering, share two cores with client and engine',
  ],
  [/^64 unpaced streams/, 'each token passes two more processes on the same two cores'],
  [/^added TTFT through NAT/, 'not known; the program that makes the delay takes a third of one of the two cores'],
  [/^RSS of the gateway/, OWN_SOURCE_TEXT],
  [/^RSS of the agent/, OWN_SOURCE_TEXT],
  [/^cost of choosing/, 'the cache of the processor: a choice reads eight objects of two random nodes'],
];

/** Adds the cause of a missed requirement: a measured cause, or else a known one. */
export function withCause({ cause: measured, ...row }: Required): Required {
  if (isMet(row) !== false) return row;
  const [, known] = CAUSES.find(([figure]) => figure.test(row.figure)) ?? [];
  return { ...row, cause: measured ?? known };
}
