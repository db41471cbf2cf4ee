/** What 10,000 connected agents cost the gateway, and what an open stream costs gateway and agent. */
import { type Memory, openBenchCluster, peak, resident, warm } from '../bench-cluster.ts';
import { chooseMicros } from '../growth/choosing.ts';
import { type CrowdFigures, crowdOfAgents } from '../growth/crowd-of-agents.ts';
import { longestReadMs } from '../growth/snapshots.ts';
import { crowd } from '../sections/crowd.ts';
import { median } from '../stats.ts';
import type { Required } from './row.ts';

const AGENTS = 10_000;
const MODELS = 100;
const CHOOSING_MOST = 1.1;
const [CPU_MOST_PERCENT, RSS_MOST_MIB, BACK_MOST_S] = [5, 1_536, 60];
const READ_MOST_MS = 1;
/** An idle agent's time between two heartbeats. */
const HEARTBEAT_S = 30;
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

const heartbeats = ({ gatewayCpuPercent, agents }: CrowdFigures) =>
  `${Math.round(agents / HEARTBEAT_S)} heartbeats a second, ${((1e4 * gatewayCpuPercent * HEARTBEAT_S) / agents).toFixed(0)} µs each`;

const returns = ({ gatewayMsPerReturn, agents, secondsUntilAllAreBack }: CrowdFigures) =>
  `${Math.round(agents / secondsUntilAllAreBack)} agents come back a second, and each takes the gateway ${gatewayMsPerReturn.toFixed(1)} ms of processor time; the processes of the agents share the cores`;

/** Rows of a gateway with idle agents. `quick`: ten agents, which only tests that it runs. */
export async function growth(quick: boolean): Promise<Required[]> {
  const agents = quick ? 10 : AGENTS;
  const found = await crowdOfAgents(agents, MODELS, quick ? 1 : 30);
  const row = (figure: string, ours: number, unit: string, most: number, cause?: string): Required => ({
    figure: `${agents.toLocaleString('en')} idle agents: ${figure}`,
    ours,
    unit,
    of: 'ours',
    most,
    cause,
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
    row('processor time of the gateway', found.gatewayCpuPercent, '% of a core', CPU_MOST_PERCENT, heartbeats(found)),
    row('RSS of the gateway', found.rssMiB, 'MiB', RSS_MOST_MIB),
    row('until all are back after its restart', found.secondsUntilAllAreBack, 's', BACK_MOST_S, returns(found)),
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
  const kib = (name: keyof Memory) => Math.round((1024 * (most[name] - before[name])) / streams);
  return {
    figure: 'memory per open stream, gateway and agent together',
    ours: (1024 * (most.gateway + most.agent - before.gateway - before.agent)) / streams,
    unit: 'KiB',
    of: 'ours',
    most: STREAM_MOST_KIB,
    cause: `gateway ${kib('gateway')} KiB, agent ${kib('agent')} KiB`,
  };
}
