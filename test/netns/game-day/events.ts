/** The events of a game day, one after the other, and where the operator finds each. */
import { execFile } from 'node:child_process';
import { copyFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { z } from 'zod';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { eventually } from '../../support/processes.ts';
import { chatBody, MODEL } from '../../support/test-cluster.ts';
import { NODE } from '../../support/where.ts';
import { AGENTS, type Day, HOSTILE } from './day.ts';

export interface GameEvent {
  what: string;
  /** The reason if it cannot be caused here. */
  skipped?(day: Day): string | undefined;
  /** The fault, or the operator's action. Resolves when it is in place. */
  happens(day: Day): Promise<void>;
  /** A line of this gateway's log, of either gateway's log, or of the audit log. */
  log: readonly ['first' | 'second' | 'either' | 'audit', RegExp];
  /** PromQL that has a sample then, and had none before. */
  metric: string;
  alert: string;
  /** True: the alert announces something that a renewal ends. */
  alertEnds?: true;
  /** Appears in the output of `otela-gateway why` for a request of that time. */
  story: RegExp;
  /** Undoes it. Resolves when everything is as before. */
  mend(day: Day): Promise<void>;
}

const run = promisify(execFile);
const BACK_MS = 90_000;
const DAY_MS = 86_400_000;
/** Between two requests with a lost key. */
const PAUSE_MS = 100;
const ANSWERS_KEPT = 500;
const keySchema = z.object({ id: z.string(), key: z.string() });

async function allServe({ first, second }: Day, nodes = AGENTS): Promise<void> {
  for (const gateway of [first, second]) await gateway.serving(nodes, BACK_MS);
}

const issuer = ({ program, first }: Day, ...args: string[]) =>
  run(NODE, [program, 'issuer', ...args, '--data', first.data]);

/** A key that the operator revokes while a program still uses it, and the statuses that the program gets. */
let revoked: { statuses: Set<number>; stop(): void } | undefined;
export const refusals = (): number[] => [...(revoked?.statuses ?? [])];

export const EVENTS: readonly GameEvent[] = [
  {
    what: 'a gateway is killed',
    happens: ({ first }) => first.kill9(),
    log: ['second', /process \d+ at \S+ has ended/],
    metric: 'up{job="otela-gateway"} == 0',
    alert: 'OtelaGatewayDown',
    story: /ended after \d+ ms: status 200/,
    mend: async (day) => {
      await day.first.restart();
      await allServe(day);
    },
  },
  {
    what: 'a disk is full',
    skipped: ({ disk }) => (typeof disk === 'string' ? disk : undefined),
    happens: async ({ disk }) => {
      if (typeof disk !== 'string') disk.fill(0);
    },
    log: ['first', /storage has not been writable since/],
    metric: 'otela_storage_failing == 1',
    alert: 'OtelaStorageFailing',
    story: /record .*: status 200/,
    mend: async (day) => {
      if (typeof day.disk !== 'string') day.disk.empty();
      await day.first.process.line(/storage is writable again/, BACK_MS);
      await allServe(day);
    },
  },
  {
    what: 'an upgrade of gateways and agents',
    happens: async (day) => {
      await day.install('0.8.0');
      for (const gateway of [day.second, day.first]) {
        await gateway.stop();
        await gateway.restart();
        await allServe(day);
      }
      void day.operate('rollout', 'start', '--to', '0.8.0', '--cohort', '50%', '--within', '2m').catch(() => undefined);
    },
    log: ['either', /"event":"node_left".*"cause":"drained"/],
    metric: 'otela_registry_agent_versions{agent_version="0.8.0"} > 0',
    alert: 'OtelaAgentVersionsMixed',
    story: /node \S+: left \(drained\)/,
    mend: async (day) => {
      await eventually('all agents are new', BACK_MS, async () =>
        (await day.operate('rollout', 'status', '--to', '0.8.0')) === `0.8.0  ${AGENTS} nodes\n` ? true : undefined,
      );
      await allServe(day);
    },
  },
  {
    what: 'a key is revoked',
    happens: async (day) => {
      const { id, key } = keySchema.parse(JSON.parse(await day.operate('keys', 'create', '--name', 'lost', '--json')));
      revoked = program(day, key);
      await eventually('the key is used', BACK_MS, () => (revoked?.statuses.has(200) ? true : undefined));
      await day.operate('keys', 'revoke', id);
    },
    log: ['first', /"event":"request".*"status":401,"error":"invalid_api_key"/],
    metric: 'otela_requests_total{error="invalid_api_key"} > 0',
    alert: 'OtelaKeysRefused',
    story: /with no valid key.*status 401, invalid_api_key/s,
    mend: async () => revoked?.stop(),
  },
  {
    what: 'a model is deprecated',
    happens: async ({ first, client }) => {
      const at = (days: number) => new Date(Date.now() + days * DAY_MS).toISOString();
      const life = { deprecated_at: at(-1), sunset_at: at(7), successor: 'stand-in/model-2' };
      await first.admin('PATCH', `catalogue/${MODEL}`, life);
      await eventually('people see the date', BACK_MS, () => (client.answered.at(-1)?.sunset ? true : undefined));
    },
    log: ['audit', /catalogue\.update +stand-in\/model-1/],
    metric: 'otela_model_sunset_timestamp_seconds > 0',
    alert: 'OtelaModelEnding',
    story: /for stand-in\/model-1 \(ends \d{4}-\d\d-\d\d, then stand-in\/model-2\)/,
    // It stays until the day is over.
    mend: async () => {},
  },
  {
    what: 'an engine hangs',
    happens: ({ control }) => control('c1h1', { fault: 'hang' }),
    log: ['first', /"event":"request".*"attempts":[2-9],.*"status":200/],
    metric: 'otela_breakers{state!="closed"} > 0',
    alert: 'OtelaBreakerOpen',
    story:
      /attempt +node (\S+): no response from its engine: hung\n.*attempt +node (?!\1)\S+: its engine answered 200/s,
    mend: async (day) => {
      await day.control('c1h1', {});
      await allServe(day);
    },
  },
  {
    what: 'a cluster is cut off',
    happens: async ({ network }) => network.link('cut', 'c2nat'),
    log: ['either', /"event":"cluster_frozen".*"cluster":"c2"/],
    metric: 'otela_frozen_clusters > 0',
    alert: 'OtelaClusterFrozen',
    story: /node \S+: suspected/,
    mend: async (day) => {
      day.network.link('heal', 'c2nat');
      await allServe(day);
    },
  },
  {
    what: 'a clock is wrong',
    happens: async (day) => {
      day.secondEnv.CLOCK_OFFSET_MS = '600000';
      await day.second.stop();
      await day.second.restart();
    },
    log: ['second', /the clock of this machine is (599|60[01]) s ahead of that of PostgreSQL/],
    metric: 'abs(otela_clock_timestamp_seconds - timestamp(otela_clock_timestamp_seconds)) > 500',
    alert: 'OtelaClockWrong',
    story: /ended after \d+ ms: status 200/,
    mend: async (day) => {
      delete day.secondEnv.CLOCK_OFFSET_MS;
      await day.second.stop();
      await day.second.restart();
      await allServe(day);
    },
  },
  {
    what: 'certificates are replaced',
    happens: async (day) => {
      for (const name of ['OtelaTlsCertificateEnding', 'OtelaCertificateEnding'])
        await day.prometheus.fires(name, BACK_MS);
      const root = join(day.first.data, 'issuer/root.key');
      await copyFile(day.rootKey, root);
      await issuer(day, 'rotate');
      await day.first.stop();
      await day.first.restart();
      await rm(root);
      await day.second.stop();
      await day.second.restart();
      // Last, because only the newest 64 KiB of a gateway's log are kept, and a restart on a busy machine may write
      // more.
      await day.renewTls();
      for (const gateway of [day.first, day.second]) {
        gateway.process.signal('SIGHUP');
        await gateway.process.line(/TLS files read again/, BACK_MS);
      }
    },
    log: ['second', /TLS files read again/],
    metric: 'otela_tls_certificate_end_timestamp_seconds - time() > 80 * 86400',
    alert: 'OtelaTlsCertificateEnding',
    alertEnds: true,
    story: /ended after \d+ ms: status 200/,
    mend: allServe,
  },
  {
    what: 'a provider turns hostile',
    happens: async ({ hostile }) => hostile.control({ claimsTokens: 100_000_000 }),
    log: ['either', /usage reports of node \S+ \(provider mallory\) were corrected: \d+ over_bound/],
    metric: `otela_usage_anomalies_total{provider="${HOSTILE}"} > 0`,
    alert: 'OtelaUsageNotAsReported',
    story: /ended after \d+ ms: status 200/,
    mend: async (day) => {
      await day.operate('providers', 'revoke', HOSTILE);
      await allServe(day, AGENTS - 1);
    },
  },
];

/** A program that keeps sending requests with its key after any response. */
function program({ first, others }: Day, key: string): NonNullable<typeof revoked> {
  const statuses = new Set<number>();
  let going = true;
  neverRejects(
    (async () => {
      for (let n = 0; going; n++) {
        const [id, sentAt] = [`lost-${n}`, Date.now()];
        const response = await fetch(`${first.url}/v1/chat/completions`, {
          method: 'POST',
          headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'x-request-id': id },
          body: JSON.stringify(chatBody({ tokens: 1 })),
        });
        await response.arrayBuffer();
        statuses.add(response.status);
        others.push({ id, url: first.url, attempts: 1, sunset: null, sentAt, at: Date.now() });
        if (others.length > ANSWERS_KEPT) others.shift();
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      }
    })(),
  );
  const stop = () => {
    going = false;
  };
  return { statuses, stop };
}
