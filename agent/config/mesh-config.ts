/** The address at which this agent listens for other agents, the peers that it knows, and its proxy relay. */

import { UsageError } from '../../shared/command-line/index.ts';
import {
  isVersion,
  OLDEST_VERSION,
  type ReleaseRules,
  readReleaseKeys,
} from '../../shared/release/release-manifest.ts';
import { parseAddress } from '../mesh/channel/dial-channel.ts';
import { isRelayFile } from '../mesh/proxy-relay/relay-location.ts';
import { SEEDS_MAX } from '../mesh/seed-addresses.ts';
import { listSetting, type ParsedSettings, type SettingReader, switchSetting, valueSetting } from './setting.ts';

export const MESH_SETTINGS = {
  /**
   * Where the agent listens. `host` undefined: on all addresses. Undefined: the agent does not listen, and only dials.
   */
  listen: valueSetting({
    flag: 'mesh',
    env: 'OTELA_MESH',
    value: 'HOST[:PORT]|:PORT|off',
    help: 'address where other agents reach this agent; it does not answer unauthenticated peers',
    otherwise: 'all addresses, a free port',
    parse: meshAddress,
    unset: () => meshAddress('on'),
  }),
  /** Addresses of other agents, as `host:port`. */
  peers: listSetting({
    flag: 'peer',
    env: 'OTELA_PEER',
    value: 'HOST:PORT',
    help: 'another agent, to find more agents through; if no gateway can be reached, it forwards the admission; repeat',
    parse: parsePeers,
  }),
  peerReleaseKeys: listSetting({
    flag: 'peer-release-keys',
    env: 'OTELA_PEER_RELEASE_KEYS',
    value: 'KEY',
    help: 'accept only agents of a release signed with one of these keys; repeat, or separate with commas',
    otherwise: 'every agent with a valid ticket',
    parse: parseReleaseKeys,
  }),
  oldestPeer: valueSetting({
    flag: 'oldest-peer',
    env: 'OTELA_OLDEST_PEER',
    value: 'VERSION',
    help: 'with --peer-release-keys: the oldest release that is accepted',
    default: OLDEST_VERSION,
    parse: parseVersion,
  }),
  /** `host:port` of the agent through which all gateways are reached, or the path of a file with it. */
  relay: valueSetting({
    flag: 'relay',
    env: 'OTELA_RELAY',
    value: 'HOST:PORT|FILE',
    help: 'reach every gateway through the agent at this address, which was started with --offer-relay; a file is read for each connection',
    parse: (text) => (isRelayFile(text) ? text : checked('--relay', text)),
  }),
  /** True if this agent forwards connections of other agents to its gateways. */
  offerRelay: switchSetting({
    flag: 'offer-relay',
    env: 'OTELA_OFFER_RELAY',
    help: 'relay between agents that cannot reach each other; also forward the gateway connections of agents with the same join token',
  }),
};

export interface MeshConfig extends Omit<ParsedSettings<typeof MESH_SETTINGS>, 'peerReleaseKeys' | 'oldestPeer'> {
  /** Releases that peers must run; undefined: every peer with a valid ticket is accepted. */
  peerReleases: ReleaseRules | undefined;
}

/** @throws UsageError */
export function meshConfig(reader: SettingReader): MeshConfig {
  if (reader.has(MESH_SETTINGS.oldestPeer) && !reader.has(MESH_SETTINGS.peerReleaseKeys))
    throw new UsageError('--oldest-peer needs --peer-release-keys: only a signed release has a version');
  const { peerReleaseKeys: keys, oldestPeer: oldest, ...config } = reader.read(MESH_SETTINGS);
  if (config.offerRelay && config.listen === undefined)
    throw new UsageError('--offer-relay needs an address to listen on: remove --mesh off');
  return { ...config, peerReleases: keys && { keys, oldest } };
}

function parsePeers(texts: readonly string[]): string[] {
  if (texts.length > SEEDS_MAX) throw new UsageError(`--peer: at most ${SEEDS_MAX} peers are allowed`);
  return texts.map((text) => checked('--peer', text));
}

function parseReleaseKeys(texts: readonly string[]): ReleaseRules['keys'] | undefined {
  if (texts.length === 0) return undefined;
  const keys = readReleaseKeys(texts.join(','));
  if (keys !== undefined && keys.length > 0) return keys;
  throw new UsageError('--peer-release-keys: not a list of release keys (32 bytes each, base64url)');
}

function parseVersion(text: string): string {
  if (isVersion(text)) return text;
  throw new UsageError(`--oldest-peer: "${text}" is not a version such as 0.2.0`);
}

function checked(flag: string, text: string): string {
  if (parseAddress(text) === undefined) throw new UsageError(`${flag}: "${text}" is not HOST:PORT`);
  return text;
}

function meshAddress(text: string): { host?: string; port: number } | undefined {
  if (text === 'on') return { port: 0 };
  if (text === 'off') return undefined;
  const bare = /^:(\d{1,5})$/.exec(text)?.[1];
  const host = text.includes(':') ? `[${text}]` : text;
  const whole = bare === undefined ? (parseAddress(text) ?? parseAddress(`${host}:1`)) : parseAddress(`0.0.0.0${text}`);
  if (whole === undefined) throw new UsageError(`--mesh: "${text}" is neither HOST, HOST:PORT, :PORT nor off`);
  const port = bare === undefined ? (parseAddress(text)?.port ?? 0) : whole.port;
  return whole.host === '0.0.0.0' || whole.host === '::' ? { port } : { host: whole.host, port };
}
