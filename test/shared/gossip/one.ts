/** One core among simulated members: tests decide what these send, and see the core's actions. */

import type { Suspicion } from '../../../shared/gossip/gossip-events.ts';
import {
  decodeMessage,
  encodeMessagePart,
  type MessagePart,
  refutationMessage,
  suspicionMessage,
} from '../../../shared/gossip/gossip-messages.ts';
import {
  createGossip,
  type GossipAction,
  type GossipEvent,
  type GossipMemory,
  type GossipState,
  step,
} from '../../../shared/gossip/index.ts';
import { RegistryReplica } from '../../../shared/lattice/registry-replica.ts';
import { standInCrypto, standInSigner } from '../../sim/crypto.ts';
import { EPOCH_S, Issuer, type Membership } from '../../sim/issuer.ts';
import { type Rng, seeded } from '../../sim/random.ts';

type PartOf<T extends MessagePart['type']> = Extract<MessagePart, { type: T }>;

export class One {
  readonly rng: Rng = seeded(77);
  readonly crypto = standInCrypto();
  readonly issuer = new Issuer(this.crypto, this.rng);
  readonly members: Membership[];
  readonly replica: RegistryReplica;
  state: GossipState;
  now = 1000;
  #timer: number | undefined;
  readonly actions: GossipAction[] = [];

  /** `members[0]` is the core itself if it is an agent's. */
  constructor(kind: 'agent' | 'gateway', clusters: readonly number[], memory?: GossipMemory) {
    this.members = clusters.flatMap((size, c) =>
      Array.from({ length: size }, (_, i) => {
        const who = { provider: 'lab', cluster: `c${c}`, birth: EPOCH_S };
        const member = this.issuer.admit(who, standInSigner(this.rng), `host-${c}-${i}`);
        member.say('SERVING');
        return member;
      }),
    );
    this.replica = new RegistryReplica({ crypto: this.crypto, accepts: () => true });
    for (const member of this.members) this.replica.load(member.full());
    this.state = this.create(kind, memory);
    this.give({ type: 'start' });
    if (kind === 'agent') this.give({ type: 'local', updates: [this.member(0).full()] });
    this.actions.length = 0;
  }

  create(kind: 'agent' | 'gateway', memory?: GossipMemory): GossipState {
    const { crypto, replica } = this;
    const me = this.member(0);
    const agent = { kind: 'agent', session: me.session, cluster: me.cluster, host: me.host } as const;
    const gateway = { kind: 'gateway', id: 'gw:here', issuer: this.issuer.id } as const;
    return createGossip({
      self: kind === 'agent' ? agent : gateway,
      replica,
      crypto,
      signer: me.signer,
      ...(memory === undefined ? {} : { memory }),
    });
  }

  member(i: number): Membership {
    const member = this.members[i];
    if (member === undefined) throw new Error(`no member ${i}`);
    return member;
  }

  id(i: number): string {
    return this.member(i).session;
  }

  give(event: GossipEvent): GossipAction[] {
    const actions = step(this.state, event, this.now, this.rng);
    for (const action of actions) if (action.type === 'timer') this.#timer = action.at;
    this.actions.push(...actions);
    return actions;
  }

  open(...members: number[]): void {
    for (const i of members) this.give({ type: 'opened', peer: this.id(i), inbound: true });
    this.actions.length = 0;
  }

  say(from: number, ...parts: MessagePart[]): GossipAction[] {
    return parts.flatMap((part) => this.give({ type: 'message', peer: this.id(from), bytes: encodeMessagePart(part) }));
  }

  /** Lets time pass; timers fire when they are due. */
  pass(ms: number): GossipAction[] {
    const until = this.now + ms;
    const actions: GossipAction[] = [];
    while (this.#timer !== undefined && this.#timer <= until) {
      this.now = Math.max(this.now, this.#timer);
      this.#timer = undefined;
      actions.push(...this.give({ type: 'timer' }));
    }
    this.now = until;
    return actions;
  }

  suspicion(target: number, observer: number, incarnation = 0, proof?: Uint8Array): PartOf<'suspicion'> {
    const { signer, session } = this.member(observer);
    const signature = signer.sign(suspicionMessage(this.id(target), incarnation, session));
    const suspicion: Suspicion = { target: this.id(target), incarnation, observer: session, signature, proof };
    return { type: 'suspicion', suspicion };
  }

  refutation(of: number, incarnation: number): PartOf<'refutation'> {
    const { session, signer } = this.member(of);
    const signature = signer.sign(refutationMessage(session, incarnation));
    return { type: 'refutation', refutation: { session, incarnation, signature } };
  }
}

export function partsTo(actions: readonly GossipAction[], peer?: string): MessagePart[] {
  return actions.flatMap((action) =>
    action.type === 'send' && (peer === undefined || action.peer === peer) ? decodeMessage(action.bytes) : [],
  );
}

export function ofType<T extends MessagePart['type']>(parts: readonly MessagePart[], type: T): PartOf<T>[] {
  return parts.filter((part): part is PartOf<T> => part.type === type);
}

export function liveness(actions: readonly GossipAction[]): string[] {
  return actions.flatMap((action) => (action.type === 'liveness' ? [action.liveness] : []));
}
