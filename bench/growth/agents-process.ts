/**
 * One process with many idle agents: `node agents-process.ts --gateway URL --token TOKEN --agents N --models N`. Each
 * agent consists of the agent's own admission and tunnel. It does the real handshake, publishes a signed record of usual
 * size, answers pings, and reconnects. It leaves out the engine, gossip with other agents, and load reports.
 *
 * Prints `connected N` each time that the number of agents with a stored record has changed, at most ten times a second.
 */
import { parseArgs } from 'node:util';
import { nodeCrypto, nodeSigner } from '../../agent/host/node-crypto.ts';
import { requestAdmission } from '../../agent/tunnel/gateway-admission.ts';
import { sessionIdentityOf } from '../../agent/tunnel/session-identity.ts';
import { openTunnel } from '../../agent/tunnel/tunnel.ts';
import { encodePayload } from '../../shared/lattice/node-payload.ts';
import { encodeUpdate } from '../../shared/lattice/registry-update.ts';
import { signRecord } from '../../shared/lattice/signed-record.ts';

/** Agents of this process that are admitted concurrently. */
const ADMITTING = 8;
const PRINT_MS = 100;

const { values } = parseArgs({
  options: {
    gateway: { type: 'string', default: '' },
    token: { type: 'string', default: '' },
    agents: { type: 'string', default: '1' },
    models: { type: 'string', default: '1' },
  },
});
const gateway = new URL(values.gateway);
const [agents, models] = [Number(values.agents), Number(values.models)];
const connected = new Set<string>();
let printed = -1;

setInterval(() => {
  if (connected.size === printed) return;
  printed = connected.size;
  console.log(`connected ${printed}`);
}, PRINT_MS);

async function start(number: number): Promise<void> {
  const key = nodeSigner();
  const { ticket } = await requestAdmission({
    gateways: [gateway],
    token: values.token,
    cluster: undefined,
    key,
    jobEndsAt: undefined,
    env: process.env,
    signal: AbortSignal.timeout(600_000),
    log: () => {},
    random: Math.random,
  });
  const payload = encodePayload({
    tier: 'volatile',
    labels: { rack: `r${number % 40}` },
    models: [{ id: `org/model-${number % models}`, state: 'ready', context_length: 131_072, engine: 'vllm' }],
    hardware: {
      gpus: [{ class: 'H100', name: 'NVIDIA H100 80GB HBM3', vram_mib: 81_559, count: 8 }],
      cpus: 128,
      memory_mib: 1_031_000,
    },
    agent_version: '1.0.0',
    host: `node-${number}.cluster.example`,
    addresses: ['10.0.0.1:7946'],
  });
  const { session } = ticket;
  const update = encodeUpdate({
    kind: 'entry',
    record: signRecord({ session, state: 'SERVING', version: 1, payload }, key, nodeCrypto),
    payload,
  });
  const tunnel = openTunnel({
    gateway,
    ticket: ticket.bytes,
    identity: sessionIdentityOf(ticket, key),
    update: () => update,
    engine: () => undefined,
    log: () => {},
    onRefused: ({ status, message }) => console.log(`refused ${status} ${message}`),
    onOver: (why) => console.log(`over ${why}`),
    onRecorded: () => connected.add(session),
    onDisconnected: () => connected.delete(session),
  });
  tunnel.open();
}

let next = 0;
await Promise.all(
  Array.from({ length: ADMITTING }, async () => {
    while (next < agents) await start(next++);
  }),
);
