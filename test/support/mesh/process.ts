/** Some members in one process, driven over IPC: `crew.ts` starts it. */
import { seeded } from '../../../bench/stats.ts';
import { Member } from './member.ts';
import { type Command, commandSchema, type MemberSpec, type Reply, type Sighting } from './protocol.ts';

/** Kept between two reports. */
const SIGHTINGS_MAX = 2_000_000;

const members: Member[] = [];
let sightings: Sighting[] = [];
let opened: Extract<Command, { do: 'open' }> | undefined;

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

async function add(index: number, spec: MemberSpec, command: Extract<Command, { do: 'open' }>): Promise<Member> {
  const random = seeded(command.seed * 1000 + index);
  const member = new Member({
    issuer: command.issuer,
    seed: bytes(spec.seed),
    ticket: bytes(spec.ticket),
    host: spec.host,
    listen: { port: 0, ...(command.listenHost === undefined ? {} : { host: command.listenHost }) },
    peers: command.peers,
    more: { random },
  });
  members[index] = member;
  watch(member, index);
  await member.open();
  member.mesh.setGateways(command.gateways.map(({ id, url }) => ({ id, url: new URL(url) })));
  return member;
}

async function run(command: Command): Promise<Omit<Reply, 'id'>> {
  switch (command.do) {
    case 'open': {
      opened = command;
      const open = await Promise.all(command.members.map((spec, index) => add(index, spec, command)));
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
      const known = old === undefined ? [] : [...old.mesh.channels].map(() => '');
      old?.say('LEFT');
      await new Promise((resolve) => setTimeout(resolve, 50 + known.length));
      old?.close();
      if (opened === undefined) return {};
      const member = await add(command.index, command.member, opened);
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
        memoryMiB: process.memoryUsage().rss / 1024 / 1024,
        ended: members.flatMap(({ ended }) => ended),
      };
    }
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
  void run(commandSchema.parse(message.command)).then((reply) => process.send?.({ id: message.id, ...reply }));
});
process.on('disconnect', () => process.exit(0));
