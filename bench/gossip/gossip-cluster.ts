/**
 * Agents in separate processes that consist only of their mesh: real sockets, real signatures, tickets from a test
 * issuer.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { nodeSigner } from '../../agent/host/node-crypto.ts';
import { CrewProcess } from '../../test/support/mesh/crew.ts';
import { TestIssuer } from '../../test/support/mesh/issuer.ts';
import type { MemberSpec, Sighting } from '../../test/support/mesh/protocol.ts';
import { eventually } from '../../test/support/processes.ts';

/** Maximum time until all agents know each other. On a small machine, starting them takes long; it is not measured. */
const TOGETHER_MS = 180_000;

/** How long a gateway waits for a tunnel's answer. */
const RELAY_MS = 400;

export interface Seen extends Sighting {
  /** Process id. */
  process: number;
}

export interface Place {
  process: number;
  index: number;
}

export class GossipCluster {
  readonly issuer: TestIssuer;
  readonly processes: CrewProcess[] = [];
  readonly perProcess: number;
  readonly #random: () => number;
  /** Maps each session to its process. */
  readonly #where = new Map<string, CrewProcess>();
  #born = 1_767_225_700;

  private constructor(perProcess: number, random: () => number) {
    this.perProcess = perProcess;
    this.#random = random;
    this.issuer = new TestIssuer(this.#bytes(32), this.#bytes(32));
  }

  static async open(processes: number, perProcess: number, random: () => number): Promise<GossipCluster> {
    const village = new GossipCluster(perProcess, random);
    let peers: string[] = [];
    for (let n = 0; n < processes; n++) {
      const process = new CrewProcess([], (session) => village.#relay(session));
      village.processes.push(process);
      const { opened = [] } = await process.ask({
        do: 'open',
        issuer: village.issuer.issuer,
        members: Array.from({ length: perProcess }, (_, i) => village.newcomer(`host-${n * perProcess + i}`)),
        listenHost: '127.0.0.1',
        peers,
        gateways: [],
        seed: Math.floor(random() * 1e9),
      });
      village.#here(opened, process);
      if (peers.length < 4) peers = [...peers, ...opened.slice(0, 4).flatMap(({ addresses }) => addresses)].slice(0, 8);
    }
    return village;
  }

  #here(opened: readonly { session: string }[], process: CrewProcess): void {
    for (const { session } of opened) this.#where.set(session, process);
  }

  /** The gateway's part: the tunnel of a process that has ended is closed, and a hanging one does not answer. */
  async #relay(session: string): Promise<'alive' | 'silent' | 'unknown'> {
    const process = this.#where.get(session);
    if (process === undefined) return 'unknown';
    if (!process.running) return 'silent';
    const asked = process.ask({ do: 'ping' }).then(
      () => 'alive' as const,
      () => 'silent' as const,
    );
    return Promise.race([asked, sleep(RELAY_MS, 'silent' as const)]);
  }

  /** Ends the session of one agent, which returns with a new session. */
  async again(at: number): Promise<void> {
    const process = this.processes[at];
    if (process === undefined) return;
    const { opened = [] } = await process.ask({ do: 'again', index: 0, member: this.newcomer(`host-${at}`) });
    this.#here(opened, process);
  }

  get size(): number {
    return this.processes.length * this.perProcess;
  }

  #bytes(count: number): Uint8Array {
    return Uint8Array.from({ length: count }, () => Math.floor(this.#random() * 256));
  }

  newcomer(host: string): MemberSpec {
    const seed = this.#bytes(32);
    const ticket = this.issuer.ticket(nodeSigner(seed).publicKey, { birth: this.#born++ }).bytes;
    return { host, seed: Buffer.from(seed).toString('base64'), ticket: Buffer.from(ticket).toString('base64') };
  }

  anyone(): Place {
    const at = Math.floor(this.#random() * this.size);
    return { process: Math.floor(at / this.perProcess), index: at % this.perProcess };
  }

  /** Waits until every agent sees `count` serving sessions. */
  async together(count = this.size): Promise<void> {
    await eventually(`all see ${count}`, TOGETHER_MS, async () => {
      for (const process of this.processes) {
        for (let index = 0; index < this.perProcess; index++) {
          const { view = [] } = await process.ask({ do: 'view', index });
          if (view.filter(({ state, liveness }) => state === 'SERVING' && liveness === 'alive').length !== count)
            return;
        }
      }
      return true;
    });
  }

  async publish(place: Place): Promise<{ session: string; version: number; at: number } | undefined> {
    const reply = await this.processes[place.process]?.ask({ do: 'publish', index: place.index, state: 'SERVING' });
    return reply?.published;
  }

  /** What all agents observed since the last call. */
  async report(): Promise<{ seen: Seen[]; sent: { messages: number; bytes: number } }> {
    const replies = await Promise.all(this.processes.map((process) => process.ask({ do: 'report' })));
    return {
      seen: replies.flatMap(({ sightings = [] }, process) => sightings.map((seen) => ({ ...seen, process }))),
      sent: {
        messages: replies.reduce((sum, { sent }) => sum + (sent?.messages ?? 0), 0),
        bytes: replies.reduce((sum, { sent }) => sum + (sent?.bytes ?? 0), 0),
      },
    };
  }

  async close(): Promise<void> {
    await Promise.all(this.processes.map((process) => process.end()));
  }
}
