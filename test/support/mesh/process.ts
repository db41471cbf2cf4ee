/** Several members in one process, controlled over IPC; `crew.ts` starts it. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { PathVerdict } from '../../../shared/gossip/gossip-events.ts';
import type { RegistryReplica } from '../../../shared/lattice/registry-replica.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { seeded } from '../random.ts';
import { Member } from './member.ts';
import { answerSchema, type Command, commandSchema, type MemberSpec, type Reply, type Sighting } from './protocol.ts';

/** Time for the last record to be sent, and for a port to become free. */
const LEAVE_MS = 20;

const STAGGER_MS = 50;

/** Maximum number of sightings between two reports. */
const SIGHTINGS_MAX = 2_000_000;

const members: Member[] = [];
/** All members, including those that left. */
const ever: Member[] = [];
let sightings: Sighting[] = [];
let opened: Open | undefined;

const bytes = (text: string) => new Uint8Array(Buffer.from(text, 'base64'));
const now = () => Number(process.hrtime.bigint());

function watch(member: Member, index: number): void {
  member.mesh.watch((sessions) => {
    const at = now();
    for (const session of sessions) {
      const entry = member.mesh.replica.get(session);
      if (sightings.length >= SIGHTINGS_MAX) return;
      const { state = 'none', version = 0 } = entry ?? {};
      sightings.push({ index, session, state, version, liveness: member.mesh.liveness(session), at });
    }
  });
}

/** Pending questions to the mock gateway. */
const questions = new Map<number, (verdict: PathVerdict) => void>();
let lastQuestion = 0;

function askGateway(session: string): Promise<PathVerdict> {
  const question = ++lastQuestion;
  return new Promise((resolve) => {
    questions.set(question, resolve);
    process.send?.({ question, session });
  });
}

type Open = Extract<Command, { do: 'open' }>;

async function add(
  index: number,
  spec: MemberSpec,
  command: Open,
  port = 0,
  replica?: RegistryReplica,
): Promise<Member> {
  const random = seeded(command.seed * 1000 + index);
  const member = new Member({
    issuer: command.issuer,
    seed: bytes(spec.seed),
    ticket: bytes(spec.ticket),
    host: spec.host,
    listen: { port, ...(command.listenHost === undefined ? {} : { host: command.listenHost }) },
    peers: command.peers,
    ...(replica === undefined ? {} : { replica }),
    more: { random, askGateway },
  });
  members[index] = member;
  ever.push(member);
  watch(member, index);
  await member.open();
  member.mesh.setGateways(command.gateways.map(({ id, url }) => ({ id, url: new URL(url) })));
  return member;
}

async function run(command: Command): Promise<Omit<Reply, 'id'>> {
  switch (command.do) {
    case 'open': {
      const [first, ...others] = command.members;
      if (first === undefined) return {};
      const one = await add(0, first, command);
      // A member must know at least one peer; if none is given, it is the first member.
      opened = command.peers.length > 0 ? command : { ...command, peers: one.mesh.addresses };
      const open = [one];
      for (const spec of others) {
        // Members start one after another, because they share an event loop, which accepts one connection per turn.
        await sleep(STAGGER_MS);
        open.push(await add(open.length, spec, opened));
      }
      return { opened: open.map(({ session, mesh }) => ({ session, addresses: mesh.addresses })) };
    }
    case 'publish': {
      const member = members[command.index];
      if (member === undefined) return {};
      const at = now();
      const version = member.say(command.state);
      return { published: { session: member.session, version, at } };
    }
    case 'again': {
      const old = members[command.index];
      if (opened === undefined || old === undefined) return {};
      old.say('LEFT');
      await sleep(LEAVE_MS);
      const port = Number(old.mesh.addresses[0]?.split(':').at(-1));
      old.close();
      await sleep(LEAVE_MS);
      // The new member keeps the replica and the port, as an agent does after its session ended.
      const member = await add(command.index, command.member, opened, port, old.mesh.replica);
      return { opened: [{ session: member.session, addresses: member.mesh.addresses }] };
    }
    case 'gateways':
      for (const { mesh } of members)
        mesh.setGateways(command.gateways.map(({ id, url }) => ({ id, url: new URL(url) })));
      return {};
    case 'report': {
      const taken = sightings;
      sightings = [];
      return {
        sightings: taken,
        channels: members.map(({ mesh }) => mesh.channels.size),
        sent: ever.reduce(
          (sum, { mesh }) => ({ messages: sum.messages + mesh.sent.messages, bytes: sum.bytes + mesh.sent.bytes }),
          { messages: 0, bytes: 0 },
        ),
        memoryMiB: process.memoryUsage().rss / 1024 / 1024,
        ended: members.flatMap(({ ended }) => ended),
      };
    }
    case 'ping':
      return {};
    case 'view': {
      const rows = [...(members[command.index]?.mesh.view() ?? [])].map(({ entry, liveness }) => ({
        session: entry.session,
        state: entry.state,
        version: entry.version,
        liveness,
        cluster: entry.ticket.cluster,
      }));
      return { view: rows };
    }
  }
}

process.on('message', (message: { id: number; command: unknown }) => {
  const answer = answerSchema.safeParse(message).data;
  if (answer !== undefined) {
    questions.get(answer.answer)?.(answer.verdict);
    questions.delete(answer.answer);
    return;
  }
  neverRejects(run(commandSchema.parse(message.command)).then((reply) => process.send?.({ id: message.id, ...reply })));
});
process.on('disconnect', () => process.exit(0));
