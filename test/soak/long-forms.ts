/**
 * The long forms. Each folder adds a row for its own: the command prints its findings, and exits with 1 if one is
 * missed.
 */

export interface LongForm {
  name: string;
  /** What it checks. */
  what: string;
  /** Approximate. */
  minutes: number;
  /** Arguments for Node, from the root of the repository. */
  argv: readonly string[];
}

export const LONG_FORMS: readonly LongForm[] = [
  {
    name: 'chaos',
    what: 'nodes are killed, paused, cut off, their engines hang, and the disk fills up, under load: clients see no error',
    minutes: 17,
    argv: ['test/chaos/main.ts', '--minutes', '10'],
  },
  {
    name: 'reports',
    what: 'reports over 10 million records of use are read while tokens stream: their way takes no longer than it may',
    minutes: 12,
    argv: ['bench/reports.ts', '--rows', '10000000'],
  },
  {
    name: 'http',
    what: 'mutated, pipelined and smuggled requests at the gateway’s socket, beside a stricter parser: no disagreement, no end, no growth',
    minutes: 11,
    argv: ['test/soak/http-fuzz.ts'],
  },
  {
    name: 'schemathesis',
    what: 'the API does what /openapi.json says, asked by Schemathesis as three roles, with twenty times as many cases as in CI',
    minutes: 25,
    argv: ['test/soak/schemathesis.ts'],
  },
  {
    name: 'batch',
    what: 'a batch of 2,000 lines in a real Slurm, half of whose jobs are preempted: each line is answered once (root)',
    minutes: 3,
    argv: ['test/soak/batch.ts'],
  },
  {
    name: 'grid-engine',
    what: 'a whole factory on a real Grid Engine: a cold model answers, its pool empties, an engine that fails rests with its log (root)',
    minutes: 8,
    argv: ['test/soak/grid-engine.ts'],
  },
  {
    name: 'htcondor',
    what: "the factory's calls on a real HTCondor, an agent in its job: GPUs, end, why it left, and one on a machine without the submitting machine's files (root; Debian 13, or a tree of it)",
    minutes: 3,
    argv: ['test/soak/htcondor.ts'],
  },
  {
    name: 'weights',
    what: 'four agents pull 2 GiB, one is killed on its way: one read of the source, a piece is lost at the most (needs 11 GB of disk)',
    minutes: 10,
    argv: ['test/soak/weights.ts'],
  },
  {
    name: 'cluster',
    what: 'three gateways on PostgreSQL are killed, paused, cut off and upgraded, with full disks and wrong clocks, and PostgreSQL fails over: clients see no error, each line has one result, limits hold, usage is exact (root)',
    minutes: 35,
    argv: ['test/soak/cluster.ts'],
  },
  {
    name: 'game-day',
    what: 'an hour at a lab of two gateways and twelve agents, whatever breaks: people see no error, its operator finds each event (root)',
    minutes: 62,
    argv: ['test/soak/game-day.ts'],
  },
  {
    name: 'page',
    what: 'the dashboard’s first load, and half an hour of 200 tokens a second in its chat: memory grows by what is shown alone',
    minutes: 33,
    argv: ['test/browser/figures.ts', '--minutes', '30'],
  },
  {
    name: 'vllm',
    what: 'three real vLLMs of a tiny model on this CPU behind agents: answers, streams and usage as asked directly (PyPI; 7 GB of disk)',
    minutes: 20,
    argv: ['test/real/vllm.ts'],
  },
  {
    name: 'lines',
    what: 'two million lines in 40 batches are accepted, checked and listed, 100,000 of them executed: memory stays below its bound',
    minutes: 5,
    argv: ['test/soak/million-lines.ts'],
  },
  {
    name: 'functions',
    what: 'a Python function on 32 agents, groups of which are killed at random and come back: each call has its result once, and most agents have calls',
    minutes: 6,
    argv: ['test/soak/functions.ts'],
  },
  {
    name: 'limits',
    what: 'a million random histories of requests, limits, restarts and clock steps: the limiter agrees with plain arithmetic',
    minutes: 25,
    argv: ['test/soak/limit-histories.ts'],
  },
  {
    name: 'regions',
    what: 'the experiments of two-layer planning over regions, 480 slots and ten seeds: no row leaves its band',
    minutes: 20,
    argv: ['research/papers/torta/main.ts'],
  },
  {
    name: 'regions-week',
    what: 'a week of a recorded trace at 60 times its speed through three gateways: the plan of regions loses no request and answers sooner than turns (root)',
    minutes: 172,
    argv: ['test/soak/regions-week.ts'],
  },
  {
    name: 'follow',
    what: 'a planner that recorded the earlier days itself changes the deployment before the mix of requests flips',
    minutes: 9,
    argv: ['test/soak/follow.ts'],
  },
  {
    name: 'oserve',
    what: "OServe's claims over all models, traces and spans: no request is lost, the search and the switches stay in their bands",
    minutes: 20,
    argv: ['research/papers/oserve/main.ts', '--json', 'oserve.json'],
  },
];

/** The named forms, or all without a name; or an error about the names. @param flags for the only named form */
export function named(names: readonly string[], flags: readonly string[] = []): readonly LongForm[] | string {
  const unknown = names.find((name) => !LONG_FORMS.some((form) => form.name === name));
  if (unknown !== undefined) return `no "${unknown}"; there are ${LONG_FORMS.map(({ name }) => name).join(', ')}`;
  if (flags.length > 0 && names.length !== 1) return `${flags[0]}: flags after -- are for one form: name it`;
  return names.length === 0 ? LONG_FORMS : LONG_FORMS.filter(({ name }) => names.includes(name));
}
