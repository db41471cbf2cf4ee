/** Answers that leave by the process's own sockets: the object's bytes are written to the client as they come, and no stream stands between. */
import { TransientMap } from '../../../shared/collections/transient-map.ts';
import { owned } from '../../../shared/wire/owned.ts';
import { nameOf } from '../../tunnel/attempt.ts';
import { Departing, type Held } from '../../tunnel/departing.ts';
import { departing, stays } from '../../tunnel/departure.ts';
import type { AnswerOutlet, Offer } from '../../tunnel/outlet.ts';

/** What an answer is written to. */
export interface Sink {
  write(bytes: Uint8Array): void;
  end(): void;
  /** Nothing more comes, and this is no end. */
  destroy(): void;
}

interface Offered {
  stream: Departing;
  sink: Sink | undefined;
}

/** All answers that are offered, or on their way out; at most as many as there are attempts. */
export class LocalOutlets {
  readonly #offered = new TransientMap<number, Offered>();
  #last = 0;

  /** The outlet of one session's object. */
  of(): AnswerOutlet {
    return new LocalOutlet(this);
  }

  add(stream: Departing): number {
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

  /** Writes the answer's rest to `sink`. Undefined: it is gone. */
  take(number: number, sink: Sink): Departing | undefined {
    const offered = this.#offered.get(number);
    if (offered === undefined) return undefined;
    offered.sink = sink;
    return offered.stream;
  }
}

class LocalOutlet implements AnswerOutlet {
  readonly #outlets: LocalOutlets;
  readonly #names = new TransientMap<string, Departing>();

  constructor(outlets: LocalOutlets) {
    this.#outlets = outlets;
  }

  offer(held: Held, tell: (offer: Offer) => void): void {
    const name = nameOf(held.exchange.request);
    const outlets = this.#outlets;
    let number = 0;
    const sink = () => outlets.get(number)?.sink;
    const over = () => {
      outlets.remove(number);
      this.#names.delete(name);
    };
    const stream: Departing = new Departing(held, {
      first: (bytes) => {
        number = outlets.add(stream);
        this.#names.set(name, stream);
        stream.farewell = departing(name);
        tell({ kind: 'departs', number, first: owned(bytes) });
      },
      none: (code) => tell(code === undefined ? { kind: 'empty' } : { kind: 'failed', code }),
      data: (_offset, bytes) => sink()?.write(bytes),
      end: () => {
        sink()?.end();
        over();
      },
      withdrawn: () => {
        over();
        stays(name);
      },
      left: () => {
        sink()?.destroy();
        over();
      },
    });
    held.exchange.answer.pour(stream);
  }

  holds(name: string): boolean {
    return this.#names.has(name);
  }

  leave(name: string): void {
    this.#names.get(name)?.leave();
  }

  takeBack(name: string): Held | undefined {
    return this.#names.get(name)?.withdraw();
  }
}
