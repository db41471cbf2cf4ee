/** Which gateways a session serves: by the word of its own institution's, whichever of them answers. */
import { afterEach, expect, test, vi } from 'vitest';
import { Session } from '../../../agent/life/session/session.ts';
import { createSessionKey } from '../../../agent/mesh/channel/session-key.ts';
import type { Mesh } from '../../../agent/mesh/mesh.ts';
import type { GatewayWord } from '../../../agent/tunnel/other-gateways.ts';
import { MEMBERSHIP_DEFAULTS } from '../../../shared/gossip/index.ts';
import { labTicket } from '../support/fake-admission.ts';
import { FakeTunnel } from '../support/fake-tunnel.ts';

const [FIRST, FOLLOWER, PEER, LATER] = ['http://first/', 'http://follower/', 'http://peer/', 'http://later/'];
const LOOK_MS = 40_000;

afterEach(() => void vi.useRealTimers());

/** One that knows a configured first, its follower and a peer's gateway. `says`: what each answers; undefined: nothing. */
function session(says: Record<string, (() => GatewayWord) | undefined>) {
  vi.useFakeTimers();
  const tunnels = new Map<string, FakeTunnel>();
  const key = createSessionKey();
  const tuned: unknown[] = [];
  /** Gateways that a log was left with. */
  const told: string[] = [];
  const mesh = {
    addresses: [],
    setGateways() {},
    publish() {},
    close() {},
    tune: (options: unknown) => tuned.push(options),
  };
  const made = new Session({
    ticket: labTicket(key.publicKey),
    key,
    gateways: [FIRST, FOLLOWER, PEER].map((url) => new URL(url)),
    configured: [new URL(FIRST)],
    askGateway: async (gateway) => says[gateway.href]?.(),
    first: {
      state: 'JOIN',
      version: 0,
      tier: 'volatile',
      labels: {},
      models: [],
      hardware: { gpus: [], cpus: 1, memory_mib: 1 },
      agent_version: 'test',
      addresses: [],
    },
    openTunnel: (options) => {
      const tunnel = new FakeTunnel(options);
      tunnels.set(options.gateway.href, tunnel);
      return tunnel;
    },
    join: async () => mesh as unknown as Mesh,
    proxy: undefined,
    leaveLogTail: async ({ gateways }) => void told.push(...gateways.map(({ href }) => href)),
    engine: () => undefined,
    log: () => {},
    onRefused: () => {},
    onOver: () => {},
  });
  made.open();
  const served = () => made.gatewayStatus().map(({ url }) => url);
  return { made, tunnels, tuned, served, told };
}

const word = (...urls: string[]): GatewayWord => ({
  gateways: urls.map((url) => new URL(url)),
  membership: { ...MEMBERSHIP_DEFAULTS, probe_ms: 7_000 },
});

test('while the first is away its follower says which there are, and how often to probe', async () => {
  const { made, tunnels, tuned, served } = session({
    [FOLLOWER]: () => word(FIRST, PEER, LATER),
    [PEER]: () => word(),
  });
  const first = tunnels.get(FIRST);
  if (first !== undefined) first.connected = false;
  await vi.advanceTimersByTimeAsync(LOOK_MS);
  expect(served()).toEqual([FIRST, FOLLOWER, PEER, LATER]);
  expect(tuned).toMatchObject([{ probeMs: 7_000 }]);
  await made.close();
});

test('where only a peer’s gateway is connected, which has no say, no gateway is left', async () => {
  const { made, tunnels, served } = session({ [FOLLOWER]: () => word(FIRST) });
  for (const url of [FIRST, FOLLOWER]) {
    const tunnel = tunnels.get(url);
    if (tunnel !== undefined) tunnel.connected = false;
  }
  await vi.advanceTimersByTimeAsync(2 * LOOK_MS);
  expect(served()).toEqual([FIRST, FOLLOWER, PEER]);
  await made.close();
});

test('a peer that was removed is left, and its gateway is not asked about it', async () => {
  const { made, served } = session({ [FIRST]: () => word(FOLLOWER), [PEER]: () => word(FIRST, FOLLOWER, LATER) });
  await vi.advanceTimersByTimeAsync(LOOK_MS);
  expect(served()).toEqual([FIRST, FOLLOWER]);
  await made.close();
});

test('a log goes to every gateway that is connected, and to all where none is yet: an engine may end before the first tunnel stands', async () => {
  const { made, tunnels, told } = session({});
  const connect = (url: string, connected: boolean) => {
    const tunnel = tunnels.get(url);
    if (tunnel !== undefined) tunnel.connected = connected;
  };
  for (const url of [FIRST, FOLLOWER, PEER]) connect(url, false);
  await made.leaveLogTail(new Uint8Array(3), AbortSignal.timeout(1_000));
  expect(told.splice(0)).toEqual([FIRST, FOLLOWER, PEER]);
  connect(FOLLOWER, true);
  connect(PEER, true);
  await made.leaveLogTail(new Uint8Array(3), AbortSignal.timeout(1_000));
  expect(told).toEqual([FOLLOWER, PEER]);
  made.close();
});
