/** The faults of a node in a scavenger queue. Each fault is over when it no longer prevents the node from serving. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Replica } from './replica.ts';

export interface Fault {
  name: string;
  /** Relative frequency among all faults. */
  weight: number;
  /**
   * True if the fault leaves the node paused or cut off: requests at its engine cannot be canceled until it is over.
   */
  outOfReach: boolean;
  /** True if this replica can have the fault. */
  suits(replica: Replica): boolean;
  strike(replica: Replica, random: () => number): Promise<void>;
}

/** True if its agent is a child of this process. */
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

/** A requeued job returns after a moment. */
const restart = (replica: Replica, random: () => number) => replica.restart(between(random, 500, 3_000));

/**
 * Shortest and longest pause and cut, in milliseconds. Values above 10 s exceed the time for which an agent keeps
 * responses for a lost tunnel.
 */
export type Pause = readonly [least: number, most: number];

async function paused(pid: number | undefined, ms: number): Promise<void> {
  signal(pid, 'SIGSTOP');
  await sleep(ms);
  signal(pid, 'SIGCONT');
}

/** `hangMs` is longer than the detection takes, so that waiting requests must be moved. */
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
    name: 'engine forgets its model',
    weight: 1,
    outOfReach: false,
    suits: ours,
    strike: async (replica, random) => {
      await replica.control({ forgets: true });
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
