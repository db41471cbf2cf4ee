/** Our gateway and the original before one engine. */

import { errorText } from '../../shared/text/error-text.ts';
import { startAgent } from '../../test/support/agent.ts';
import { Gateway } from '../../test/support/gateway.ts';
import { memoryOf } from '../../test/support/process-table.ts';
import type { Managed } from '../../test/support/processes.ts';
import { startEngine } from '../bench-cluster.ts';
import { MODEL } from '../engine-answers.ts';
import { type Original, startOriginal } from '../peers/original.ts';
import type { Required } from './row.ts';
import type { Sides } from './side-by-side.ts';

const READY_MS = 30_000;
/** Wait after the start, until memory that only the start needed is freed. */
const REST_MS = 5_000;
/** Keys are counted against limits that no run reaches. */
const LIMITS = { requests_per_minute: 10_000_000, tokens_per_minute: 100_000_000_000 };

export interface ComparisonCluster {
  gateway: Gateway;
  agent: Managed;
  sides: Sides;
  original: Original | undefined;
}

/**
 * Starts a gateway and an agent, and the original next to them. If the original is missing, `notes` gets the reason.
 */
export async function openComparisonCluster(notes: string[]): Promise<ComparisonCluster> {
  const { url } = await startEngine();
  const gateway = await Gateway.start();
  const [key, token] = await Promise.all([gateway.createKey('bench', { limits: LIMITS }), gateway.createJoinToken()]);
  const agent = await startAgent({ gateways: [gateway.url], token, engineUrl: url });
  await gateway.serving(1, READY_MS, MODEL);
  let original: Original | undefined;
  try {
    original = await startOriginal(url);
  } catch (error) {
    notes.push(`the original was not measured: ${errorText(error)}`);
  }
  const sides = { direct: { url }, ours: { url: gateway.url, key }, original: original?.target };
  return { gateway, agent, sides, original };
}

export const rest = () => new Promise((resolve) => setTimeout(resolve, REST_MS));

/** Resident memory of two processes with the same task, ours and the original's. */
function memoryOfPair(figure: string, own: Managed, other: Managed | undefined, most?: number): Required {
  const ours = memoryOf(own.pid).rssMib;
  const original = other && memoryOf(other.pid).rssMib;
  const ratio = original === undefined ? {} : { original, ratio: ours / original };
  return { figure, ours, ...ratio, unit: 'MiB', of: 'ours', ...(most === undefined ? {} : { most }) };
}

/** Memory of the gateway and of the original's head. */
export function memoryRow(figure: string, { gateway, original }: ComparisonCluster, most?: number): Required {
  return memoryOfPair(figure, gateway.process, original?.head, most);
}

/** Memory of the agent and of the original's worker. */
export function agentMemoryRow(figure: string, { agent, original }: ComparisonCluster, most: number): Required {
  return memoryOfPair(figure, agent, original?.worker, most);
}
