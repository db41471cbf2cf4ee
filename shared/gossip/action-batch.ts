/**
 * Collects the actions of one step. Parts for one peer are sent in one message, because a message's header costs as
 * much as a ping.
 */
import { concat } from '../collections/concat.ts';
import type { GossipAction, PeerId } from './gossip-events.ts';
import { encodeMessagePart, GOSSIP_MESSAGE_MAX_BYTES, type MessagePart } from './gossip-messages.ts';

export class ActionBatch {
  readonly #actions: GossipAction[] = [];
  /** Encoded parts by peer, in order. Each `take` empties it. */
  readonly #parts = new Map<PeerId, Uint8Array[]>();
  readonly #changed = new Set<string>();

  send(peer: PeerId, part: MessagePart | Uint8Array): void {
    const bytes = part instanceof Uint8Array ? part : encodeMessagePart(part);
    const parts = this.#parts.get(peer);
    if (parts === undefined) this.#parts.set(peer, [bytes]);
    else parts.push(bytes);
  }

  act(action: GossipAction): void {
    this.#actions.push(action);
  }

  changed(sessions: Iterable<string>): void {
    for (const session of sessions) this.#changed.add(session);
  }

  /** Drops parts for a peer whose channel has ended. */
  forget(peer: PeerId): void {
    this.#parts.delete(peer);
  }

  take(): GossipAction[] {
    const actions: GossipAction[] = [];
    // Messages to peers come before the other actions. Otherwise peers would wait while local watchers of the replica
    // work.
    for (const [peer, parts] of this.#parts) {
      for (const bytes of messages(parts)) actions.push({ type: 'send', peer, bytes });
    }
    if (this.#changed.size > 0) actions.push({ type: 'changed', sessions: [...this.#changed] });
    actions.push(...this.#actions);
    this.#changed.clear();
    this.#parts.clear();
    this.#actions.length = 0;
    return actions;
  }
}

function messages(parts: readonly Uint8Array[]): Uint8Array[] {
  if (parts.length === 1 && parts[0] !== undefined) return [parts[0]];
  const done: Uint8Array[] = [];
  let from = 0;
  let length = 0;
  for (let i = 0; i <= parts.length; i++) {
    const next = parts[i]?.length ?? Number.POSITIVE_INFINITY;
    if (length > 0 && length + next > GOSSIP_MESSAGE_MAX_BYTES) {
      done.push(concat(parts.slice(from, i)));
      from = i;
      length = 0;
    }
    length += next;
  }
  return done;
}
