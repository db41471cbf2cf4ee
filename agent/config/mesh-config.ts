/** The address at which this agent listens for others, the peers that it knows, and its relay. */

import { UsageError } from '../../shared/command-line/index.ts';
import { isVersion, OLDEST_VERSION, type ReleaseRules, readReleaseKeys } from '../../shared/release/release.ts';
import { parseAddress } from '../mesh/channel/dial.ts';
import { SEEDS_MAX } from '../mesh/seeds.ts';

export interface MeshConfig {
  /** `host` undefined: on all addresses. Undefined: the agent does not listen and only dials. */
  listen: { host?: string; port: number } | undefined;
  /** `host:port`. */
  peers: string[];
  /** `host:port` of the agent through which every gateway is reached. */
  relay: string | undefined;
  /** True if this agent passes others' bytes on to its gateways. */
  offerRelay: boolean;
  /** Releases that peers must run; undefined: every peer with a valid ticket is accepted. */
  peerReleases: ReleaseRules | undefined;
}

/** Values of the flags. */
interface MeshFlags {
  listen: string | undefined;
  peers: readonly string[];
  relay: string | undefined;
  offerRelay: boolean;
  peerReleaseKeys: readonly string[];
  oldestPeer: string | undefined;
}

/** Throws UsageError. */
export function meshConfig(flags: MeshFlags): MeshConfig {
  const { listen, peers, relay, offerRelay, peerReleaseKeys, oldestPeer } = flags;
  if (peers.length > SEEDS_MAX) throw new UsageError(`at most ${SEEDS_MAX} peers`);
  const at = listenAddress(listen);
  if (offerRelay && at === undefined) throw new UsageError('--offer-relay needs a place to listen: not --mesh off');
  return {
    listen: at,
    peers: peers.map((text) => checked('--peer', text)),
    relay: relay === undefined ? undefined : checked('--relay', relay),
    offerRelay,
    peerReleases: peerReleases(peerReleaseKeys, oldestPeer),
  };
}

function peerReleases(given: readonly string[], oldest: string | undefined): ReleaseRules | undefined {
  if (given.length === 0) {
    if (oldest !== undefined)
      throw new UsageError('--oldest-peer needs --peer-release-keys: only a signed release has a version');
    return undefined;
  }
  const keys = readReleaseKeys(given.join(','));
  if (keys === undefined || keys.length === 0)
    throw new UsageError('--peer-release-keys: not a list of release keys (32 bytes each, base64url)');
  if (oldest !== undefined && !isVersion(oldest))
    throw new UsageError(`--oldest-peer: "${oldest}" is not a version such as 0.2.0`);
  return { keys, oldest: oldest ?? OLDEST_VERSION };
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
