/** The gateways that a session serves: its own institution's gateways decide, whichever of them answers. */
import { afterEach, expect, test, vi } from 'vitest';
import { Session } from '../../../../agent/life/session/session.ts';
import { createSessionKey } from '../../../../agent/mesh/channel/session-key.ts';
import type { Mesh } from '../../../../agent/mesh/mesh.ts';
import type { GatewayHints } from '../../../../agent/tunnel/other-gateways.ts';
import { MEMBERSHIP_DEFAULTS } from '../../../../shared/gossip/index.ts';
import { labTicket } from '../../support/fake-admission.ts';
import { FakeTunnel } from '../../support/fake-tunnel.ts';

const [FIRST, SECOND, PEER, LATER] = ['http://first/', 'http://second/', 'http://peer/', 'http://later/'];
const LOOK_MS = 40_000;

/** The real wait clock counts turns of the process, which a fake clock does not have: waits here are plain timers. */
vi.mock('../../../../agent/wait-clock.ts', async (original) => {
  const real = await original<typeof import('../../../../agent/wait-clock.ts')>();
  const after = (ms: number, ring: () => void) => {
    const timer = setTimeout(ring, ms);
    return () => clearTimeout(timer);
  };
  return { ...real, waitClock: { now: () => performance.now(), after } };
});

afterEach(() => void vi.useRealTimers());

/**
 * A session that knows a configured gateway, a second one and a peer's gateway. `says`: the hints of each; undefined:
 * no answer.
 */
function session(says: Record<string, (() => GatewayHints) | undefined> = {}) {
  vi.useFakeTimers();
  const tunnels = new Map<string, FakeTunnel>();
  const key = createSessionKey();
  const tuned: unknown[] = [];
  /** Gateways that were sent the end of the log. */
  const told: string[] = [];
  const ended: string[] = [];
  /** Gateways that were asked for other gateways. */
  const asked: string[] = [];
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
    gateways: [
      { url: new URL(FIRST), own: true },
      { url: new URL(SECOND), own: true },
      { url: new URL(PEER), own: false },
    ],
    configured: [new URL(FIRST)],
    askGateway: async (gateway) => {
      asked.push(gateway.href);
      return says[gateway.href]?.();
    },
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
    order: async () => ({ answer: { kind: 'described', offers: [] } }),
    leaveLogTail: async ({ gateways }) => void told.push(...gateways.map(({ href }) => href)),
    engine: () => undefined,
    log: () => {},
    onRefused: () => {},
    onOver: (why) => ended.push(why),
  });
  made.open();
  const served = () => made.gatewayStatus().map(({ url }) => url);
  const connect = (url: string, connected: boolean) => {
    const tunnel = tunnels.get(url);
    if (tunnel !== undefined) tunnel.connected = connected;
  };
  return { made, tunnels, tuned, served, told, ended, asked, connect };
}

const word = (...urls: string[]): GatewayHints => ({
  gateways: urls.map((url) => ({ url: new URL(url), own: url !== PEER })),
  membership: { ...MEMBERSHIP_DEFAULTS, probe_ms: 7_000 },
});

test('while the first is away the second says which there are, and how often to probe', async () => {
  const { made, tuned, served, connect } = session({
    [SECOND]: () => word(FIRST, PEER, LATER),
    [PEER]: () => word(),
  });
  connect(FIRST, false);
  await vi.advanceTimersByTimeAsync(LOOK_MS);
  expect(served()).toEqual([FIRST, SECOND, PEER, LATER]);
  expect(tuned).toMatchObject([{ probeMs: 7_000 }]);
  await made.close();
});

test('where only a peer’s gateway is connected it is not asked, whatever it would say, and no gateway is left', async () => {
  const { made, served, asked, connect } = session({ [PEER]: () => word(LATER), [SECOND]: () => word(FIRST) });
  for (const url of [FIRST, SECOND]) connect(url, false);
  await vi.advanceTimersByTimeAsync(2 * LOOK_MS);
  expect(asked).toEqual([]);
  expect(served()).toEqual([FIRST, SECOND, PEER]);
  await made.close();
});

test('a peer’s gateway ends no session: not by a 410 while the own gateways are away, nor under the name of the admitting one', async () => {
  const { made, tunnels, ended, connect } = session();
  const peer = tunnels.get(PEER)?.options;
  peer?.onConnected?.(`gw:${made.ticket.keyName}`);
  peer?.onOver?.('evicted');
  for (const url of [FIRST, SECOND]) {
    connect(url, false);
    tunnels.get(url)?.options.onDisconnected?.();
  }
  expect(ended).toEqual([]);
  tunnels.get(SECOND)?.options.onOver?.('evicted here');
  expect(ended).toEqual(['evicted here']);
  await made.close();
});

test('an end that a gateway does not acknowledge is not told as acknowledged', async () => {
  const { made, tunnels } = session();
  await vi.advanceTimersByTimeAsync(10);
  const first = tunnels.get(FIRST);
  if (first !== undefined) first.publish = () => new Promise(() => {});
  const left = made.leave();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(await left).toBe(false);
  const well = session();
  await vi.advanceTimersByTimeAsync(10);
  const end = well.made.leave();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(await end).toBe(true);
});

test('a peer’s gateway is not told what would be deployed here; an order that it passes on is read', async () => {
  const { made, tunnels } = session();
  const ask = async (url: string, order: Uint8Array) => (await tunnels.get(url)?.options.order?.(order))?.answer;
  expect(await ask(PEER, new Uint8Array())).toMatchObject({ kind: 'refused' });
  expect(await ask(SECOND, new Uint8Array())).toEqual({ kind: 'described', offers: [] });
  expect(await ask(PEER, new Uint8Array(1))).toEqual({ kind: 'described', offers: [] });
  await made.close();
});

test('gateways of the institution claim each other’s attempts; a peer’s gateway claims none and gives none', async () => {
  const { made, tunnels } = session();
  const siblings = (url: string) => [...(tunnels.get(url)?.options.siblings?.() ?? [])];
  expect(siblings(FIRST)).toEqual([tunnels.get(SECOND)?.attempts]);
  expect(siblings(SECOND)).toEqual([tunnels.get(FIRST)?.attempts]);
  expect(siblings(PEER)).toEqual([]);
  await made.close();
});

test('a peer that was removed is left, and its gateway is not asked about it', async () => {
  const { made, served } = session({ [FIRST]: () => word(SECOND), [PEER]: () => word(FIRST, SECOND, LATER) });
  await vi.advanceTimersByTimeAsync(LOOK_MS);
  expect(served()).toEqual([FIRST, SECOND]);
  await made.close();
});

test('a log goes to the own gateways that are connected, and to all of them where none is yet; never to a peer’s', async () => {
  const { made, told, connect } = session();
  for (const url of [FIRST, SECOND, PEER]) connect(url, false);
  await made.leaveLogTail(new Uint8Array(3), AbortSignal.timeout(1_000));
  expect(told.splice(0)).toEqual([FIRST, SECOND]);
  connect(SECOND, true);
  connect(PEER, true);
  await made.leaveLogTail(new Uint8Array(3), AbortSignal.timeout(1_000));
  expect(told).toEqual([SECOND]);
  await made.close();
});
