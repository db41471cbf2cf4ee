/** Starts processes of mesh members and controls them. */
import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import type { PathVerdict } from '../../../shared/gossip/gossip-events.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { patience } from '../patience.ts';
import { atEnd } from '../processes.ts';
import { NODE, ROOT } from '../where.ts';
import { type Command, questionSchema, type Reply, replySchema } from './protocol.ts';

const ANSWER_MS = 60_000;

export class CrewProcess {
  readonly child: ChildProcess;
  #next = 0;
  readonly #waiting = new Map<number, (reply: Reply) => void>();
  #output = '';

  /**
   * `prefix`: e.g. `ip netns exec HOST`. `relay`: the gateway's answer if one of these members asks about a session.
   */
  constructor(
    prefix: readonly string[] = [],
    relay: (session: string) => Promise<PathVerdict> = async () => 'unknown',
  ) {
    const [file = NODE, ...args] = [...prefix, NODE, join(ROOT, 'test/support/mesh/process.ts')];
    this.child = spawn(file, args, { stdio: ['ignore', 'pipe', 'pipe', 'ipc'] });
    this.child.setMaxListeners(0); // one listener per pending question
    for (const stream of [this.child.stdout, this.child.stderr])
      stream?.setEncoding('utf8').on('data', (text: string) => {
        this.#output = (this.#output + text).slice(-8_192);
      });
    this.child.on('message', (message) => {
      const question = questionSchema.safeParse(message).data;
      if (question !== undefined) {
        neverRejects(
          relay(question.session).then((verdict) => {
            if (this.child.connected) this.child.send({ answer: question.question, verdict });
          }),
        );
        return;
      }
      const reply = replySchema.parse(message);
      this.#waiting.get(reply.id)?.(reply);
      this.#waiting.delete(reply.id);
    });
    atEnd(() => this.end());
  }

  get pid(): number {
    return this.child.pid ?? -1;
  }

  get running(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null;
  }

  get output(): string {
    return this.#output;
  }

  ask(command: Command): Promise<Reply> {
    const id = ++this.#next;
    return new Promise((resolve, reject) => {
      const fail = (why: string) => reject(new Error(`process ${this.pid} ${why} at ${command.do}\n${this.#output}`));
      const timer = setTimeout(() => fail('does not answer'), patience(ANSWER_MS));
      const onExit = () => fail('ended');
      this.child.once('exit', onExit);
      this.#waiting.set(id, (reply) => {
        clearTimeout(timer);
        this.child.off('exit', onExit);
        resolve(reply);
      });
      this.child.send({ id, command });
    });
  }

  signal(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }

  async end(): Promise<void> {
    if (!this.running) return;
    const gone = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.kill('SIGKILL');
    await gone;
  }
}
