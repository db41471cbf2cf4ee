import { type IngressUsage, USAGE_BATCH_MAX } from '../../shared/usage/ingress-usage.ts';
import type { UsageSender, UsageSenderListener as Way } from '../tunnel/tunnel-types.ts';
import type { UsageQueue } from './usage-queue.ts';

/**
 * Time after which an unacknowledged batch of records is sent again on another tunnel, because the first gateway's
 * object may have moved.
 */
const RETRY_MS = 10_000;

/** Delivers waiting usage records to one of the connected gateways, one batch at a time. */
export class UsageDelivery implements Way {
  readonly #queue: UsageQueue;
  readonly #senders = new Set<UsageSender>();
  #sequence = 0;
  #sent: { sender: UsageSender; sequence: number; records: IngressUsage[] } | undefined;
  #retryTimer: NodeJS.Timeout | undefined;

  constructor(queue: UsageQueue) {
    this.#queue = queue;
    queue.watch(() => this.#next());
  }

  connected(sender: UsageSender): void {
    this.#senders.add(sender);
    this.#next();
  }

  disconnected(sender: UsageSender): void {
    this.#senders.delete(sender);
    if (this.#sent?.sender !== sender) return;
    this.#sent = undefined; // the batch may have been stored: it is sent again, and the gateway counts each record once
    this.#next();
  }

  stored(sender: UsageSender, sequence: number): void {
    const sent = this.#sent;
    if (sent === undefined || sent.sender !== sender || sent.sequence !== sequence) return;
    this.#sent = undefined;
    this.#queue.stored(sent.records);
    this.#next();
  }

  #next(): void {
    const [sender] = this.#senders;
    if (this.#sent !== undefined || sender === undefined) return;
    clearTimeout(this.#retryTimer);
    const records = this.#queue.oldest(USAGE_BATCH_MAX);
    if (records.length === 0) return;
    const sequence = ++this.#sequence;
    this.#sent = { sender, sequence, records };
    sender.send(sequence, JSON.stringify(records));
    this.#retryTimer = setTimeout(() => this.#giveUp(sequence), RETRY_MS).unref();
  }

  /** Sends the batch to another gateway, if there is one. */
  #giveUp(sequence: number): void {
    if (this.#sent?.sequence !== sequence) return;
    const { sender } = this.#sent;
    this.#sent = undefined;
    this.#senders.delete(sender);
    this.#senders.add(sender);
    this.#next();
  }

  close(): void {
    clearTimeout(this.#retryTimer);
    this.#senders.clear();
    this.#sent = undefined;
  }
}
