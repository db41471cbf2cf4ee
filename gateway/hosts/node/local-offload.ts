/**
 * Responses that the tunnel object writes directly to the client's socket in the same process, without a stream in
 * between.
 */

import { attemptName, type ResultOf } from '../../../shared/attempts/attempt-request.ts';
import { TransientMap } from '../../../shared/collections/transient-map.ts';
import { copyView } from '../../../shared/wire/copy-view.ts';
import { expectCompletion, forgetCompletion } from '../../tunnel/offload/offloaded-response.ts';
import { OffloadedStream } from '../../tunnel/offload/offloaded-stream.ts';
import type { OffloadableResponse, ResponseOffload } from '../../tunnel/offload/response-offload.ts';

/** The connection to which a response is written. */
export interface ResponseSocket {
  write(bytes: Uint8Array): void;
  end(): void;
  /** Ends the connection, because the response is incomplete. */
  destroy(): void;
}

interface Offered {
  stream: OffloadedStream;
  sink: ResponseSocket | undefined;
}

/** All responses that are offered or being sent. At most as many as there are attempts. */
export class LocalOffloads {
  readonly #offered = new TransientMap<number, Offered>();
  /** Offloads by session; only of sessions whose responses are being sent. */
  readonly #active = new TransientMap<string, LocalOffload>();
  #last = 0;

  /**
   * Returns the offload of one session's tunnel object. Called when an instance of the object starts. Ends the
   * responses of the previous instance, which was reset: it will neither write to their clients again nor notice that
   * they disconnect.
   */
  of(session: string): ResponseOffload {
    this.#active.get(session)?.lose();
    const offload = new LocalOffload(this, (active) => {
      if (active) this.#active.set(session, offload);
      else if (this.#active.get(session) === offload) this.#active.delete(session);
    });
    return offload;
  }

  add(stream: OffloadedStream): number {
    const number = ++this.#last;
    this.#offered.set(number, { stream, sink: undefined });
    return number;
  }

  get(number: number): Offered | undefined {
    return this.#offered.get(number);
  }

  remove(number: number): void {
    this.#offered.delete(number);
  }

  /** Starts to write the rest of a response to `sink`. Undefined: the response no longer exists. */
  take(number: number, sink: ResponseSocket): OffloadedStream | undefined {
    const offered = this.#offered.get(number);
    if (offered === undefined) return undefined;
    offered.sink = sink;
    return offered.stream;
  }
}

class LocalOffload implements ResponseOffload {
  readonly #offloads: LocalOffloads;
  readonly #names = new TransientMap<
    string,
    { stream: OffloadedStream; number: number; response: OffloadableResponse }
  >();
  readonly #active: (active: boolean) => void;

  /** @param active called with whether responses are being sent */
  constructor(offloads: LocalOffloads, active: (active: boolean) => void) {
    this.#offloads = offloads;
    this.#active = active;
  }

  offer(response: OffloadableResponse, onResult: (result: ResultOf<'offloaded' | 'whole' | 'failure'>) => void): void {
    const { attempt, answer } = response;
    const { status, head } = answer;
    const name = attemptName(attempt.request);
    const offloads = this.#offloads;
    let number = 0;
    const sink = () => offloads.get(number)?.sink;
    const over = () => {
      offloads.remove(number);
      this.#names.delete(name);
      if (this.#names.size === 0) this.#active(false);
    };
    const stream: OffloadedStream = new OffloadedStream(attempt, {
      first: (bytes) => {
        number = offloads.add(stream);
        this.#names.set(name, { stream, number, response });
        this.#active(true);
        stream.completion = expectCompletion(name);
        onResult({ kind: 'offloaded', status, head, first: copyView(bytes), rest: number });
      },
      none: (code) => {
        if (code === undefined) onResult({ kind: 'whole', status, head, bytes: new Uint8Array(0) });
        else onResult({ kind: 'failure', code, message: 'the response broke off' });
      },
      data: (_offset, bytes) => sink()?.write(bytes),
      end: () => {
        sink()?.end();
        over();
      },
      withdrawn: () => {
        over();
        forgetCompletion(name);
      },
      left: () => {
        sink()?.destroy();
        over();
      },
    });
    attempt.answer.pipeTo(stream);
  }

  holds(name: string): boolean {
    return this.#names.has(name);
  }

  leave(name: string): void {
    this.#names.get(name)?.stream.leave();
  }

  takeBack(name: string): OffloadableResponse | undefined {
    const offered = this.#names.get(name);
    return offered?.stream.withdraw() === true ? offered.response : undefined;
  }

  /** Ends all responses, because the object is gone. Their clients get a broken connection. */
  lose(): void {
    for (const { stream, number } of [...this.#names.values()]) {
      this.#offloads.get(number)?.sink?.destroy();
      this.#offloads.remove(number);
      stream.completion?.ended.resolve('lost');
    }
    this.#names.clear();
    this.#active(false);
  }
}
