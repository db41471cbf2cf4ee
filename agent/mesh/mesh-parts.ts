/** Creates the parts of a mesh and connects them. They do nothing before `Mesh.open`. */
import { createGossip } from '../../shared/gossip/index.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { ProvenConnection } from './channel/accept-channel.ts';
import type { Channel } from './channel/channel.ts';
import { Listener } from './channel/channel-listener.ts';
import { sessionContext } from './channel/channel-tls.ts';
import { Tickets } from './check-ticket.ts';
import { Circuits } from './circuit/circuits.ts';
import { GatewayGossipSockets } from './gateway-gossip-sockets.ts';
import { MeshGossipDriver } from './gossip-driver.ts';
import { MeshChannels } from './mesh-channels.ts';
import type { MeshOptions } from './mesh-options.ts';
import type { PeerBans } from './peer-bans.ts';
import { PeerConnector } from './peer-connector.ts';
import { PendingDials } from './pending-dials.ts';
import { HolePuncher } from './punch/hole-puncher.ts';
import { Seeds } from './seed-addresses.ts';

type Gossip = Pick<MeshGossipDriver, 'handle'>;

/** @param act carries out the actions of the gossip core */
export function createMeshParts(
  options: MeshOptions,
  bans: PeerBans,
  act: ConstructorParameters<typeof MeshGossipDriver>[0]['act'],
) {
  const { ticket, key, replica, crypto, random = Math.random } = options;
  const { session } = ticket;
  const later: Gossip = { handle: (event) => gossip.handle(event) };
  const channels = createChannels(options, later);
  const credentials = createCredentials(options, bans);
  const connections = createConnections(options, credentials, channels, random);
  const seeds = new Seeds({
    addresses: options.peers,
    dial: (address) => connections.dials.dial(undefined, [address]),
    connected: () => channels.size > 0,
    random,
    log: options.log,
  });
  const delegates = createDelegates(options, later);
  const self = { kind: 'agent', session, cluster: ticket.cluster, host: options.host } as const;
  const gossip: MeshGossipDriver = new MeshGossipDriver({
    state: createGossip({ self, replica, crypto, signer: key, options: options.tuned ?? {} }),
    act,
    random,
  });
  return { channels, credentials, ...connections, seeds, delegates, gossip };
}

type Credentials = ReturnType<typeof createCredentials>;

/** What this agent proves to others, and how it checks their proofs. */
function createCredentials({ ticket, key, replica, crypto, issuerName, releases }: MeshOptions, bans: PeerBans) {
  const banned = (peer: string) => bans.has(peer, performance.now());
  const tickets = new Tickets({ crypto, replica, session: ticket.session, issuerName, banned });
  return {
    own: { context: sessionContext(key), ticket: ticket.bytes, releases },
    openTicket: (bytes: Uint8Array) => tickets.open(bytes),
  };
}

/** Creates the connections to other agents: direct ones in both directions, and those through relays. */
function createConnections(
  options: MeshOptions,
  credentials: Credentials,
  channels: MeshChannels,
  random: () => number,
) {
  const { ticket, replica, requests, env, proxy, offerRelay = false } = options;
  const { session } = ticket;
  const take = (proven: ProvenConnection) => addDialled(channels, proven);
  const dials = new PendingDials({ ...credentials, ticketOf: (peer) => replica.get(peer)?.ticket.bytes, take });
  const listener = new Listener({
    ...credentials,
    onProven: (proven) => void channels.add(proven, false),
    onPunch: (proven) => neverRejects(puncher.answer(proven)),
    ...(offerRelay ? { onCircuit: (proven) => neverRejects(circuits.relay?.take(proven)) } : {}),
    ...(options.onConnect === undefined ? {} : { onConnect: options.onConnect }),
    ...(options.onWeights === undefined ? {} : { onWeights: options.onWeights }),
    ...(options.limits === undefined ? {} : { limits: options.limits }),
  });
  const circuits: Circuits = new Circuits({
    ...credentials,
    session,
    replica,
    offered: offerRelay,
    identity: identityOf(options),
    env,
    proxy,
    accept: (socket, relay) => listener.acceptThrough(socket, relay),
    random,
  });
  const puncher = new HolePuncher({
    dial: (peer, signal) => circuits.dial(peer, signal, 'punch'),
    observe: (localPort, signal) => circuits.observe(localPort, signal),
    secure: (socket, peer) => circuits.secure(socket, peer),
    accept: (socket) => listener.acceptThrough(socket, undefined),
  });
  const connector = new PeerConnector({
    circuits,
    dials,
    punch: (peer) => puncher.punch(peer),
    addressesOf: (peer) => replica.get(peer)?.payload?.addresses ?? [],
    channels,
    take,
    isUsing: (peer) => requests?.isUsing?.(peer) ?? false,
    random,
  });
  return { dials, listener, circuits, connector, puncher };
}

function identityOf({ ticket, key }: MeshOptions) {
  return { session: ticket.session, publicKey: key.publicKey, sign: (message: Uint8Array) => key.sign(message) };
}

function createDelegates(options: MeshOptions, gossip: Gossip): GatewayGossipSockets {
  const { ticket, env, proxy, log } = options;
  return new GatewayGossipSockets({
    identity: identityOf(options),
    ticket: ticket.bytes,
    env,
    proxy,
    onOpened: (peer) => gossip.handle({ type: 'opened', peer, inbound: false }),
    onGossip: (peer, bytes) => gossip.handle({ type: 'message', peer, bytes }),
    onClosed: (peer) => gossip.handle({ type: 'closed', peer }),
    onDialFailed: (peer) => gossip.handle({ type: 'dialFailed', peer }),
    log,
  });
}

function createChannels({ ticket, requests, log }: MeshOptions, gossip: Gossip): MeshChannels {
  return new MeshChannels({
    session: ticket.session,
    onGossip: (channel, bytes) => gossip.handle({ type: 'message', peer: channel.session, bytes }),
    onFrame: (channel, frame) => {
      if (requests !== undefined) return requests.onFrame(channel, frame);
      if (frame.type === 'open')
        channel.link.put({ type: 'reset', stream: frame.stream, code: 'refused', message: '' });
    },
    onMessageEnd: (channel) => requests?.onMessageEnd(channel),
    onFault: (channel, error) => {
      const what = error instanceof Error ? (error.stack ?? error.message) : String(error);
      log(`internal error of this agent on a message from ${channel.session}: ${what}`);
    },
    onChannel: (channel) => requests?.onChannel(channel),
    onChannelClosed: (channel) => requests?.onChannelClosed(channel),
    // The core closes outbound channels that it does not need. It must not close a relayed channel, which exists for
    // requests and is closed by PeerConnector. So the core gets it as an inbound channel.
    onOpened: ({ session: peer, dialled, through }) =>
      gossip.handle({ type: 'opened', peer, inbound: !dialled || through !== undefined }),
    onClosed: (peer) => gossip.handle({ type: 'closed', peer }),
  });
}

function addDialled(channels: MeshChannels, proven: ProvenConnection): Channel | undefined {
  const { session } = proven.peer;
  const open = channels.get(session);
  if (open?.dialled && (open.through === undefined || proven.through !== undefined)) {
    // Two addresses led to the same agent: a configured one, and one that the agent published.
    proven.socket.destroy();
    return open;
  }
  const channel = channels.add(proven, true);
  return channels.get(session) ?? channel;
}
