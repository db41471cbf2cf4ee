/** Where this agent listens for others, whom it knows, and who passes its bytes on. */
import { parseAddress } from '../mesh/channel/dial.ts';
import { SEEDS_MAX } from '../mesh/seeds.ts';
import { UsageError } from './exit.ts';

export interface MeshConfig {
  /** `host` undefined: on all addresses. Undefined: nowhere; this agent only dials. */
  listen: { host?: string; port: number } | undefined;
  /** Host:port. */
  peers: string[];
  /** Host:port of the agent through which every gateway is reached. */
  relay: string | undefined;
  /** Pass others' bytes to the gateways that this agent has. */
  offerRelay: boolean;
}

/** Throws UsageError. */
export function meshConfig(
  listen: string | undefined,
  peers: readonly string[],
  relay: string | undefined,
  offerRelay: boolean,
): MeshConfig {
  if (peers.length > SEEDS_MAX) throw new UsageError(`at most ${SEEDS_MAX} peers`);
  const at = listenAddress(listen);
  if (offerRelay && at === undefined) throw new UsageError('--offer-relay needs a place to listen: not --mesh off');
  return {
    listen: at,
    peers: peers.map((text) => checked('--peer', text)),
    relay: relay === undefined ? undefined : checked('--relay', relay),
    offerRelay,
  };
}

function checked(flag: string, text: string): string {
  if (parseAddress(text) === undefined) throw new UsageError(`${flag}: "${text}" is not HOST:PORT`);
  return text;
}

function listenAddress(text: string | undefined): MeshConfig['listen'] {
  if (text === undefined || text === 'on') return { port: 0 };
  if (text === 'off') return undefined;
  const bare = /^:(\d{1,5})$/.exec(text)?.[1];
  const host = text.includes(':') ? `[${text}]` : text;
  const whole = bare === undefined ? (parseAddress(text) ?? parseAddress(`${host}:1`)) : parseAddress(`0.0.0.0${text}`);
  if (whole === undefined) throw new UsageError(`--mesh: "${text}" is neither HOST, HOST:PORT, :PORT nor off`);
  const port = bare === undefined ? (parseAddress(text)?.port ?? 0) : whole.port;
  return whole.host === '0.0.0.0' || whole.host === '::' ? { port } : { host: whole.host, port };
}
