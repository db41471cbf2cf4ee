/** Pulls one blob from the node that its coordinator names, or from the source. */

import { setTimeout as delay } from 'node:timers/promises';
import { inBackground } from '../../shared/timing/in-background.ts';
import {
  BLOB_LEASE_MS,
  type CoordinatorAnswer,
  type CoordinatorQuestion,
} from '../../shared/weights/blob-coordinator.ts';
import { pieceSpan } from '../../shared/weights/blob-pieces.ts';
import type { PeerBlocklist } from '../../shared/weights/peer-blocklist.ts';
import type { ManifestFile } from '../../shared/weights/weights-manifest.ts';
import type { Blob } from './blob.ts';
import { PieceStreamReader } from './piece-stream.ts';
import { PieceWriter } from './piece-writer.ts';
import type { Sha256Thread } from './sha256-thread.ts';
import type { BlobSource } from './sources/blob-source.ts';
import { TransferWatch } from './transfer-watch.ts';
import type { WeightsClient } from './weights-client.ts';
import type { PullLimits } from './weights-config.ts';
import { asWeightsError, WeightsError } from './weights-error.ts';
import type { Store } from './weights-store.ts';

const RENEW_MS = BLOB_LEASE_MS / 3;
const SENDER_WAIT_FACTOR = 4;
/**
 * If a pull returns to a node that it left as too slow, it accepts a quarter of the previous rate. So a pull ends even
 * if every path is slow.
 */
const LESS_EACH_TIME = 4;
/**
 * After this many complete but invalid blobs from other nodes, the pull uses only the source, because each such blob
 * costs the transfer of a whole blob.
 */
const FALSE_MAX = 2;
/**
 * A pull stays with the source only if the source is this many times as fast as another node, because all nodes share
 * the source.
 */
const SOURCE_TIMES = 4;

interface BlobPullOptions {
  file: ManifestFile;
  /** Revision of the manifest that lists the file. */
  revision: string;
  source: BlobSource;
  store: Store;
  hasher: Sha256Thread;
  client: WeightsClient;
  blocklist: PeerBlocklist;
  limits: PullLimits;
  /** Asks the blob's coordinator. Never rejects. */
  ask(question: Omit<CoordinatorQuestion, 'blob'>): Promise<CoordinatorAnswer>;
  /** Called if the coordinator answered `wait` for longer than a pull may wait. */
  onWaitTimeout(): void;
  /** True if there is no other node to ask. */
  alone(): boolean;
  /** Called when the blob is open and being filled, so that its progress can be read. */
  onBlob(blob: Blob): void;
  onBytes(bytes: number, from: 'source' | 'peer'): void;
  log(line: string): void;
}

export class BlobPull {
  readonly #options: BlobPullOptions;
  #whole = 0;
  #progressAt = performance.now();
  #cannotRead = false;
  #failure: WeightsError | undefined;
  #parent: string | undefined;
  #reading = false;
  /** True if some pieces of the blob came from a node or from an earlier process, and not from the source. */
  #mixed = false;
  /** Nodes that sent pieces of the current content. Bounded by the nearby nodes. */
  readonly #senders = new Set<string>();
  /** Nodes that sent part of an invalid blob. This pull never uses them again. */
  readonly #falseSenders = new Set<string>();
  #falseBlobs = 0;
  /** How often this pull left each node as too slow. Bounded by the nearby nodes. */
  readonly #slowSenders = new Map<string, number>();
  /** The node whose rate is being compared with the source's. */
  #compared: { session: string; bytesPerS: number } | undefined;
  #comparisons = 0;

  constructor(options: BlobPullOptions) {
    this.#options = options;
  }

  /** Resolves when the blob is on disk and verified. @throws WeightsError */
  async run(signal: AbortSignal): Promise<void> {
    const { file, store, hasher, onBlob } = this.#options;
    if (file.exact) this.#whole = hasher.begin();
    const filling = await store.fill(file, this.#whole, signal);
    if (filling === undefined) return;
    const { blob, done } = filling;
    onBlob(blob);
    this.#mixed = blob.have > 0;
    const renew = setInterval(() => inBackground('weights', this.#renew(), this.#options.log), RENEW_MS);
    try {
      for (;;) {
        while (blob.have < blob.pieces) await this.#step(blob, signal);
        if (await this.#isWhole(blob)) break;
      }
      await blob.finish();
    } catch (error) {
      throw asWeightsError(error);
    } finally {
      clearInterval(renew);
      await done();
    }
  }

  async #isWhole(blob: Blob): Promise<boolean> {
    const { file, hasher, blocklist, log } = this.#options;
    if (!file.exact) return true;
    const digest = await hasher.end(this.#whole);
    if (digest === file.key) return true;
    const from = [...this.#senders].join(', ') || (this.#mixed ? 'an earlier pull' : 'its source');
    log(`weights: ${file.path} from ${from} has the wrong SHA-256; starting again`);
    // Start again with the first piece, even if all pieces came from the source. If they stayed on disk, each later
    // pull would fail too.
    await blob.restart();
    if (!this.#mixed) throw new WeightsError('wrong', `${file.path} differs from the SHA-256 that its source reports`);
    for (const sender of this.#senders) {
      blocklist.failed(sender, performance.now());
      this.#falseSenders.add(sender);
    }
    this.#falseBlobs++;
    if (this.#falseBlobs >= FALSE_MAX && this.#cannotRead)
      throw new WeightsError(
        'wrong',
        `other nodes sent ${file.path} with the wrong SHA-256, and its source cannot be read`,
      );
    this.#senders.clear();
    this.#mixed = false;
    this.#parent = undefined;
    this.#whole = hasher.begin();
    return false;
  }

  async #step(blob: Blob, signal: AbortSignal): Promise<void> {
    const { file, limits, blocklist } = this.#options;
    if (signal.aborted) throw new WeightsError('stopped', 'the pull was cancelled');
    const silent = performance.now() - this.#progressAt;
    if (silent > limits.giveUpMs)
      throw this.#failure ?? new WeightsError('unavailable', `neither the source nor any node has ${file.path}`);
    try {
      const answer = await this.#answer(silent);
      if (answer.kind === 'read') return await this.#fromSource(blob, signal);
      if (answer.kind === 'peer') return await this.#fromPeer(blob, answer.session, signal);
      await delay(limits.waitMs, undefined, { signal });
    } catch (error) {
      const failure = asWeightsError(error);
      // If the source was only read for a comparison, the compared node has the remaining pieces. So it does not matter
      // that the source changed or disappeared.
      const changed = failure.code === 'changed' && this.#compared === undefined;
      // Drop all pieces: otherwise the blob would begin with one content and end with another.
      if (this.#reading && (changed || failure.code === 'wrong') && !file.exact) await blob.restart();
      // If the source changed, no node can read the rest, and a new manifest is needed.
      if (changed || failure.code === 'full' || signal.aborted) throw failure;
      this.#failure = failure;
      if (this.#parent === undefined) {
        if (this.#reading && this.#cannotRead && this.#options.alone()) throw failure;
        this.#cannotRead = this.#cannotRead || this.#reading;
        await delay(limits.waitMs, undefined, { signal });
      } else blocklist.failed(this.#parent, performance.now());
      this.#options.log(`weights: ${file.path}: ${failure.message}`);
    } finally {
      if (this.#reading) this.#compared = undefined;
      this.#reading = false;
    }
  }

  async #answer(silentMs: number): Promise<CoordinatorAnswer> {
    const { limits, ask, alone, onWaitTimeout } = this.#options;
    if (this.#compared !== undefined || this.#falseBlobs >= FALSE_MAX) return { kind: 'read' };
    if (alone() && this.#cannotRead) return { kind: 'read' };
    if (silentMs > limits.sourceAfterMs * 2) this.#cannotRead = false;
    const reply = await ask({ role: this.#cannotRead ? 'cannot' : 'wants', avoid: this.#avoid() });
    // A coordinator may name a node again although this pull asked to avoid it.
    const answer: CoordinatorAnswer =
      reply.kind === 'peer' && this.#falseSenders.has(reply.session) ? { kind: 'wait' } : reply;
    if (this.#cannotRead || answer.kind === 'read') return answer;
    // If another node sends this blob, wait longer before reading the source. Otherwise, while the source stalls, all
    // nodes would start to read it at the same time.
    const patienceMs = limits.sourceAfterMs * (answer.kind === 'wait' ? 1 : SENDER_WAIT_FACTOR);
    if (silentMs <= patienceMs) return answer;
    if (answer.kind === 'wait') onWaitTimeout();
    await ask({ role: 'reads' });
    return { kind: 'read' };
  }

  #avoid(): string[] {
    return [...new Set([...this.#falseSenders, ...this.#options.blocklist.blocked(performance.now())])].slice(0, 64);
  }

  async #renew(): Promise<void> {
    const { ask } = this.#options;
    if (this.#reading) await ask({ role: 'reads' });
    else if (this.#parent !== undefined) await ask({ role: 'wants', parent: this.#parent, avoid: this.#avoid() });
  }

  async #fromSource(blob: Blob, signal: AbortSignal): Promise<void> {
    const { file, revision, source, hasher, limits, blocklist } = this.#options;
    const compared = this.#compared;
    this.#parent = undefined;
    this.#reading = true;
    const writer = new PieceWriter(blob, hasher, this.#whole);
    const stop = new AbortController();
    const within = AbortSignal.any([signal, stop.signal]);
    const watch = new TransferWatch({
      ...limits,
      slowBytesPerS: Math.max(limits.slowBytesPerS, SOURCE_TIMES * (compared?.bytesPerS ?? 0)),
      midPiece: () => true,
      onSlow: () => inBackground('weights', this.#leaveSource(stop), this.#options.log),
    });
    try {
      watch.begin();
      let memory: SharedArrayBuffer | undefined;
      let has = 0;
      for await (const chunk of source.read(file, { revision, offset: blob.bytes }, within)) {
        within.throwIfAborted();
        watch.came(chunk.length);
        this.#progressAt = performance.now();
        for (let at = 0; at < chunk.length; ) {
          if (writer.next >= blob.pieces)
            throw new WeightsError('wrong', `${file.path} is longer than its source says`);
          const { length } = pieceSpan(blob, writer.next);
          memory ??= await writer.memory();
          const take = Math.min(length - has, chunk.length - at);
          new Uint8Array(memory).set(chunk.subarray(at, at + take), has);
          has += take;
          at += take;
          this.#progress(take, 'source');
          if (has < length) continue;
          writer.write(memory, length, undefined);
          memory = undefined;
          has = 0;
        }
      }
      await writer.flush();
      if (blob.have < blob.pieces) throw new WeightsError('unavailable', `the source ended ${file.path} early`);
      if (compared !== undefined) blocklist.failed(compared.session, performance.now());
    } catch (error) {
      throw stop.signal.aborted && !signal.aborted ? stop.signal.reason : error;
    } finally {
      watch.end();
      await writer.settled();
    }
  }

  /**
   * Stops reading the source if it hangs, if it is not much faster than the compared node, or if it is slow and another
   * node has the blob.
   */
  async #leaveSource(stop: AbortController): Promise<void> {
    const { ask, limits } = this.#options;
    const leave = (why: string) => stop.abort(new WeightsError('unavailable', `its source ${why}`));
    if (this.#compared !== undefined) return leave(`is not much faster than ${this.#compared.session}`);
    if (performance.now() - this.#progressAt > limits.giveUpMs) return leave('sends nothing more');
    if (this.#falseBlobs >= FALSE_MAX) return;
    const answer = await ask({ role: 'reads', avoid: this.#avoid() });
    if (answer.kind === 'peer') leave('is too slow, and another node has the file');
  }

  async #fromPeer(blob: Blob, session: string, signal: AbortSignal): Promise<void> {
    const { client, file, hasher, blocklist, limits } = this.#options;
    const left = this.#slowSenders.get(session) ?? 0;
    const slowBytesPerS = limits.slowBytesPerS / LESS_EACH_TIME ** left;
    this.#parent = session;
    const stop = new AbortController();
    const of = { bytes: 0, sinceMs: performance.now() };
    const writer = new PieceWriter(blob, hasher, this.#whole);
    const reader: PieceStreamReader = new PieceStreamReader(
      () => (writer.next < blob.pieces ? pieceSpan(blob, writer.next).length : -1),
      {
        onProgress: (bytes) => {
          watch.came(bytes);
          if (bytes > 0) this.#progress(bytes, 'peer');
        },
        memory: () => writer.memory(),
        onPiece: async (memory, length, digest) => {
          this.#mixed = true;
          this.#senders.add(session);
          writer.write(memory, length, digest);
          of.bytes += length;
          if (this.#isOutpaced(session, blob.size - writer.next * blob.pieceBytes, of)) stop.abort();
        },
      },
    );
    const watch = new TransferWatch({
      ...limits,
      slowBytesPerS,
      midPiece: () => !reader.isBetweenPieces,
      onSlow: () => stop.abort(),
    });
    try {
      const wanted = { key: file.key, size: file.size, piece: blob.pieceBytes, from: blob.have };
      const pieces = await client.blob(session, wanted, AbortSignal.any([signal, stop.signal]));
      watch.begin();
      for await (const chunk of pieces) await reader.push(chunk);
      await writer.flush();
      if (blob.have < blob.pieces) throw new WeightsError('unavailable', `${session} ended its response early`);
      blocklist.succeeded(session);
    } catch (error) {
      if (!stop.signal.aborted) throw error;
      if (this.#compared !== undefined) return;
      this.#slowSenders.set(session, left + 1);
      throw new WeightsError('unavailable', `${session} is too slow`);
    } finally {
      watch.end();
      await writer.settled();
    }
  }

  /**
   * True if the rest of the blob would take longer than `restMs` at this node's rate. Its rate is then compared with
   * the source's. Without comparisons, a node that is barely fast enough would keep the pull for days although the
   * source may be fast. Each comparison doubles the time until the next one, because the source may be slow too.
   */
  #isOutpaced(session: string, left: number, of: { bytes: number; sinceMs: number }): boolean {
    const { tryAfterMs, restMs } = this.#options.limits;
    const tookMs = performance.now() - of.sinceMs;
    if (tookMs < tryAfterMs * 2 ** this.#comparisons) return false;
    const bytesPerMs = of.bytes / tookMs;
    Object.assign(of, { bytes: 0, sinceMs: performance.now() });
    if (left <= bytesPerMs * restMs) return false;
    this.#comparisons++;
    this.#compared = { session, bytesPerS: bytesPerMs * 1000 };
    return true;
  }

  #progress(bytes: number, from: 'source' | 'peer'): void {
    this.#progressAt = performance.now();
    this.#options.onBytes(bytes, from);
  }
}
