/** What 10,000 connected agents cost the gateway, and what an open stream costs gateway and agent. */
import { openBenchCluster, peak, resident, warm } from '../bench-cluster.ts';
import { chooseMicros } from '../growth/choosing.ts';
import { crowdOfAgents } from '../growth/crowd-of-agents.ts';
import { longestReadMs } from '../growth/snapshots.ts';
import { crowd } from '../sections/crowd.ts';
import { median } from '../stats.ts';
import type { Required } from './row.ts';

const AGENTS = 10_000;
const MODELS = 100;
const CHOOSING_MOST = 1.1;
const [CPU_MOST_PERCENT, RSS_MOST_MIB, BACK_MOST_S] = [5, 1_536, 60];
const READ_MOST_MS = 1;
const STREAMS = 1_000;
const STREAM_MOST_KIB = 64;

function choosing(rounds: number): Required {
  const micros = (nodes: number) => chooseMicros({ nodes, models: 1, conversations: false });
  const ratios = Array.from({ length: rounds }, () => micros(AGENTS) / micros(10));
  return {
    figure: 'cost of choosing a node, 10,000 nodes ÷ 10 nodes',
    ours: median(ratios),
    unit: '×',
    of: 'ours',
    most: CHOOSING_MOST,
  };
}

/** Rows of a gateway with idle agents. `quick`: ten agents, which only tests that it runs. */
export async function growth(quick: boolean): Promise<Required[]> {
  const agents = quick ? 10 : AGENTS;
  const found = await crowdOfAgents(agents, MODELS, quick ? 1 : 30);
  const row = (figure: string, ours: number, unit: string, most: number): Required => ({
    figure: `${agents.toLocaleString('en')} idle agents: ${figure}`,
    ours,
    unit,
    of: 'ours',
    most,
  });
  return [
    choosing(quick ? 1 : 3),
    {
      figure: 'longest part of reading the registry, 10,000 busy nodes',
      ours: longestReadMs(quick ? 10 : AGENTS),
      unit: 'ms',
      of: 'ours',
      most: READ_MOST_MS,
    },
    row('processor time of the gateway', found.gatewayCpuPercent, '% of a core', CPU_MOST_PERCENT),
    row('RSS of the gateway', found.rssMiB, 'MiB', RSS_MOST_MIB),
    row('until all are back after its restart', found.secondsUntilAllAreBack, 's', BACK_MOST_S),
  ];
}

/** Memory of gateway and agent per open stream: the growth of their RSS during a thousand streams. */
export async function memoryOfStreams(quick: boolean): Promise<Required> {
  const cluster = await openBenchCluster();
  await warm(cluster.through, quick ? 200 : 4_000);
  const streams = quick ? 50 : STREAMS;
  const before = resident(cluster);
  const most = await peak(cluster, async () => {
    await crowd(cluster.through, { streams, rate: 10, seconds: quick ? 2 : 10, seed: 1 });
  });
  return {
    figure: 'memory per open stream, gateway and agent together',
    ours: (1024 * (most.gateway + most.agent - before.gateway - before.agent)) / streams,
    unit: 'KiB',
    of: 'ours',
    most: STREAM_MOST_KIB,
  };
}
