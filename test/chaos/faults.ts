/** What befalls a node on a scavenger queue. Each fault is over when the node can serve again as far as it depends on the fault. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Replica } from './replica.ts';

export interface Fault {
  name: string;
  /** How often it is drawn, among all. */
  weight: number;
  /** It leaves the node paused or cut off: what its engine does then cannot be cancelled until it is over. */
  outOfReach: boolean;
  /** Whether it can befall this one. */
  suits(replica: Replica): boolean;
  strike(replica: Replica, random: () => number): Promise<void>;
}

/** Its agent is a child of ours. */
const ours = (replica: Replica) => replica.agent !== undefined;
const any = () => true;

const between = (random: () => number, least: number, most: number) => least + random() * (most - least);

function signal(pid: number | undefined, name: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    process.kill(pid, name);
  } catch {
    // It has ended.
  }
}

/** A job that is requeued is back after a moment. */
const restart = (replica: Replica, random: () => number) => replica.restart(between(random, 500, 3_000));

/** Shortest and longest pause and cut, ms. Those above 10 s outlive the answers that an agent keeps for a lost tunnel. */
export type Pause = readonly [least: number, most: number];

async function paused(pid: number | undefined, ms: number): Promise<void> {
  signal(pid, 'SIGSTOP');
  await sleep(ms);
  signal(pid, 'SIGCONT');
}

/** `hangMs`: longer than it takes to be found out, so that what waits there has to be moved. */
export const faults = (pauseMs: Pause, hangMs: Pause): readonly Fault[] => [
  {
    name: 'engine hangs',
    weight: 1,
    outOfReach: false,
    suits: ours,
    strike: async (replica, random) => {
      await replica.control({ fault: 'hang' });
      await sleep(between(random, ...hangMs));
      await replica.control({});
    },
  },
  {
    name: 'agent killed',
    weight: 2,
    outOfReach: true,
    suits: ours,
    strike: (replica, random) => {
      replica.agent?.signal('SIGKILL');
      return restart(replica, random);
    },
  },
  {
    name: 'engine killed',
    weight: 2,
    outOfReach: false,
    suits: ours,
    strike: (replica, random) => {
      signal(replica.enginePid, 'SIGKILL');
      return restart(replica, random);
    },
  },
  {
    name: 'agent stopped',
    weight: 2,
    outOfReach: true,
    suits: ours,
    strike: (replica, random) => paused(replica.agent?.pid, between(random, ...pauseMs)),
  },
  {
    name: 'engine stalled',
    weight: 2,
    outOfReach: true,
    suits: ours,
    strike: (replica, random) => paused(replica.enginePid, between(random, ...pauseMs)),
  },
  {
    name: 'tunnel reset',
    weight: 2,
    outOfReach: true,
    suits: any,
    strike: async (replica) => replica.options.door.reset(),
  },
  {
    name: 'tunnel cut',
    weight: 1,
    outOfReach: true,
    suits: any,
    strike: async (replica, random) => {
      replica.options.door.cut();
      await sleep(between(random, ...pauseMs));
      replica.options.door.mend();
    },
  },
  {
    name: 'engine answers 503',
    weight: 2,
    outOfReach: false,
    suits: ours,
    strike: async (replica, random) => {
      await replica.control({ status: 503 });
      await sleep(between(random, 1_000, 8_000));
      await replica.control({});
    },
  },
  {
    name: 'engine breaks off',
    weight: 1,
    outOfReach: false,
    suits: ours,
    strike: async (replica, random) => {
      await replica.control({ fault: 'close', afterTokens: Math.floor(between(random, 0, 20)) });
      await sleep(between(random, 1_000, 5_000));
      await replica.control({});
    },
  },
];
