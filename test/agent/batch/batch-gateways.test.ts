import { expect, it } from 'vitest';
import type { BatchGatewayClient } from '../../../agent/batch/batch-gateway-client.ts';
import { BatchGateways } from '../../../agent/batch/batch-gateways.ts';

const url = (name: string) => new URL(`https://${name}.example.org`);

/** Gateways by host name: the ones that are asked for leases, and the ones that are closed. */
function watched() {
  const state = { named: [url('a')], asked: new Set<string>(), closed: [] as string[], busy: new Set<string>() };
  const hosts = new Map<BatchGatewayClient, string>();
  const gateways = new BatchGateways({
    named: () => state.named,
    open: ({ host }) => {
      const gateway = { close: async () => void state.closed.push(host) } as unknown as BatchGatewayClient;
      hosts.set(gateway, host);
      return gateway;
    },
    log: () => {},
    begin: (gateway, signal) => {
      const host = hosts.get(gateway) ?? '';
      state.asked.add(host);
      signal.addEventListener('abort', () => state.asked.delete(host));
    },
    busy: (gateway) => state.busy.has(hosts.get(gateway) ?? ''),
  });
  return { state, gateways };
}

it('lines are taken of a gateway that was learned of, and of none that is no longer named', () => {
  const { state, gateways } = watched();
  gateways.look();
  state.named = [url('a'), url('b')];
  gateways.look();
  gateways.look();
  expect([...state.asked]).toEqual(['a.example.org', 'b.example.org']);
  state.named = [url('a')];
  gateways.look();
  expect([...state.asked]).toEqual(['a.example.org']);
  expect(state.closed).toEqual(['b.example.org']);
});

it('a gateway that goes and comes back is left when its leases are over, and asked again', () => {
  const { state, gateways } = watched();
  gateways.look();
  state.busy.add('a.example.org');
  state.named = [];
  gateways.look();
  expect(state.closed).toEqual([]);
  state.named = [url('a')];
  gateways.look();
  expect(state.asked.size).toBe(0);
  state.busy.clear();
  gateways.look();
  expect([...state.asked]).toEqual(['a.example.org']);
  expect(state.closed).toEqual(['a.example.org']);
});

it('there are at most sixteen', () => {
  const { state, gateways } = watched();
  state.named = Array.from({ length: 40 }, (_, i) => url(`g${i}`));
  gateways.look();
  expect(state.asked.size).toBe(16);
});
