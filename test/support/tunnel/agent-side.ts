/** A real agent's tunnel and engine; the test plays the gateway's end. */
import { openTunnel } from '../../../agent/tunnel/tunnel.ts';
import type { Tunnel, TunnelOptions, TunnelRefusal } from '../../../agent/tunnel/tunnel-types.ts';
import { type Engine, startEngine } from '../engine.ts';
import { atEnd } from '../processes.ts';
import { MODEL } from '../test-cluster.ts';
import { HandGateway, type HandSocket } from './hand-gateway.ts';
import { TestIssuer, wordsOf } from './identities.ts';
import { nodeRecord } from './tunnel-bench.ts';

interface AgentSide {
  gateway: HandGateway;
  engine: Engine;
  tunnel: Tunnel;
  log: string[];
  refusals: TunnelRefusal[];
}

/** Starts the agent and resolves before its first handshake. */
export async function startAgentSide(
  more: Partial<TunnelOptions> = {},
  reads?: number,
  tail?: string,
): Promise<AgentSide> {
  const [gateway, engine] = await Promise.all([HandGateway.open(), startEngine({ models: [MODEL] })]);
  gateway.reads = reads;
  gateway.tail = tail;
  const log: string[] = [];
  const refusals: TunnelRefusal[] = [];
  const identity = new TestIssuer().identity();
  const tunnel = openTunnel({
    gateway: gateway.url,
    ticket: identity.ticket.bytes,
    identity,
    update: () => wordsOf(identity, nodeRecord()),
    engine: () => ({ origin: engine.url, pathPrefix: '' }),
    log: (line) => log.push(line),
    onRefused: (refusal) => refusals.push(refusal),
    ...more,
  });
  atEnd(async () => {
    await tunnel.close();
    await gateway.close();
    await engine.close();
  });
  return { gateway, engine, tunnel, log, refusals };
}

/** Starts the agent and resolves after its handshake: `socket` is ready for frames. */
export async function openAgentSide(
  more: Partial<TunnelOptions> = {},
  reads?: number,
  tail?: string,
): Promise<AgentSide & { socket: HandSocket }> {
  const side = await startAgentSide(more, reads, tail);
  const socket = await side.gateway.socket(0);
  await socket.greet();
  return { ...side, socket };
}
