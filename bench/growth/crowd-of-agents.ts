/** A gateway with many idle agents: its processor time and memory, and how soon the agents are back after its restart. */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Gateway } from '../../test/support/gateway.ts';
import { memoryOf } from '../../test/support/process-table.ts';
import { eventually, Managed } from '../../test/support/processes.ts';
import { NODE, ROOT } from '../../test/support/where.ts';
import { ranFor } from '../ran-for.ts';

/** A provider's agents may join in a burst of this number; see gateway/registry/admission-quota.ts. */
const AGENTS_PER_PROVIDER = 1_000;
const JOINED_WITHIN_MS = 300_000;
const BACK_WITHIN_MS = 180_000;
/** Time between the last agent's join and the measurement, in which files and buffers of the joining are closed. */
const SETTLE_MS = 15_000;

export interface CrowdFigures {
  agents: number;
  secondsUntilAllHaveJoined: number;
  gatewayCpuPercent: number;
  rssMiB: number;
  secondsUntilAllAreBack: number;
  /** Processor time of the gateway until then, by agent, ms. */
  gatewayMsPerReturn: number;
}

/** The number of connected agents in all processes. */
function connectedIn(processes: readonly Managed[]): number {
  return processes.reduce((sum, { output }) => sum + Number(/.*connected (\d+)/s.exec(output)?.[1] ?? 0), 0);
}

/** Resolves with the seconds until all agents are connected. */
async function untilConnected(processes: readonly Managed[], agents: number, withinMs: number): Promise<number> {
  const from = performance.now();
  const all = async () => (connectedIn(processes) === agents ? true : undefined);
  const ended = processes.map((one) => one.exited.then(() => Promise.reject(one.failure('ended'))));
  await Promise.race([eventually(`${agents} connected agents`, withinMs, all), ...ended]);
  return (performance.now() - from) / 1_000;
}

async function startAgents(gateway: Gateway, agents: number, models: number): Promise<Managed[]> {
  const processes: Managed[] = [];
  for (let provider = 0; provider * AGENTS_PER_PROVIDER < agents; provider++) {
    const count = Math.min(AGENTS_PER_PROVIDER, agents - provider * AGENTS_PER_PROVIDER);
    const token = await gateway.createJoinToken(`provider-${provider}`);
    const flags = { gateway: gateway.url, token, agents: count, models };
    const file = join(ROOT, 'bench/growth/agents-process.ts');
    const command = Object.entries(flags).flatMap(([name, value]) => [`--${name}`, String(value)]);
    processes.push(new Managed([NODE, file, ...command], { label: `${count} agents` }));
  }
  return processes;
}

/** `idleSeconds`: how long the processor time of the idle gateway is measured. */
export async function crowdOfAgents(agents: number, models: number, idleSeconds: number): Promise<CrowdFigures> {
  const gateway = await Gateway.start();
  const processes = await startAgents(gateway, agents, models);
  const secondsUntilAllHaveJoined = await untilConnected(processes, agents, JOINED_WITHIN_MS);
  await sleep(SETTLE_MS);
  const before = ranFor(gateway.process.pid);
  await sleep(idleSeconds * 1_000);
  const gatewayCpuPercent = (100 * (ranFor(gateway.process.pid) - before)) / 1e9 / idleSeconds;
  const { rssMib: rssMiB } = memoryOf(gateway.process.pid);
  await gateway.kill9();
  await eventually('the agents notice the end', 30_000, async () => (connectedIn(processes) === 0 ? true : undefined));
  const from = performance.now();
  await gateway.restart();
  await untilConnected(processes, agents, BACK_WITHIN_MS);
  const secondsUntilAllAreBack = (performance.now() - from) / 1_000;
  const gatewayMsPerReturn = ranFor(gateway.process.pid) / 1e6 / agents;
  await Promise.all([...processes.map((one) => one.stop()), gateway.kill9()]);
  return { agents, secondsUntilAllHaveJoined, gatewayCpuPercent, rssMiB, secondsUntilAllAreBack, gatewayMsPerReturn };
}
