/** The real Prometheus as a process, with the configuration from `deploy/prometheus`. */
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { eventually, freePort, Managed, temporaryDirectory } from './processes.ts';
import { ROOT } from './where.ts';

const SHIPPED = join(ROOT, 'deploy/prometheus');

const labels = z.record(z.string(), z.string());
const vector = z.object({
  status: z.literal('success'),
  data: z.object({ result: z.array(z.object({ metric: labels, value: z.tuple([z.number(), z.string()]) })) }),
});
const rules = z.object({
  data: z.object({
    groups: z.array(z.object({ rules: z.array(z.object({ name: z.string(), query: z.string() })) })),
  }),
});
const alerts = z.object({
  data: z.object({ alerts: z.array(z.object({ state: z.string(), labels, annotations: labels })) }),
});

export type Alert = z.infer<typeof alerts>['data']['alerts'][number];
export interface Sample {
  labels: Record<string, string>;
  value: number;
}

/** The shipped alerts with waits of two seconds and windows of ten, except the day for which a model is remembered. */
export function shortenedRules(): string {
  return readFileSync(join(SHIPPED, 'otela.rules.yml'), 'utf8')
    .replace(/for: \d+[mh]/g, 'for: 2s')
    .replace(/\[1d\]/g, '[10m]')
    .replace(/(\[|offset )(5|10|15)m/g, '$110s');
}

interface PrometheusOptions {
  /**
   * `url` has the path /metrics; `token` is the bearer token. `also`: hosts of other gateways. `ca`: a PEM file, if no
   * public CA signed the certificate.
   */
  gateway: { url: string; token: string; also?: string[]; ca?: string };
  agents: { hosts: string[]; token: string };
  /** The text of the alert rules; default: the shipped file. */
  rules?: string;
  /** Seconds between two scrapes; default: as shipped. */
  intervalS?: number;
}

export class Prometheus {
  readonly url: string;
  readonly #process: Managed;

  private constructor(url: string, process: Managed) {
    this.url = url;
    this.#process = process;
  }

  static async start(options: PrometheusOptions): Promise<Prometheus> {
    const directory = await temporaryDirectory('otela-prometheus');
    const shipped = readFileSync(join(SHIPPED, 'prometheus.yml'), 'utf8');
    const { url, also = [], ca } = options.gateway;
    const { protocol, host } = new URL(url);
    const tls = ca === undefined ? '' : `\n    tls_config: { ca_file: ${ca} }`;
    let config = shipped
      .replace('scheme: https', `scheme: ${protocol.slice(0, -1)}${tls}`)
      .replace('gateway.example', [host, ...also].map((one) => `"${one}"`).join(', '));
    if (options.intervalS !== undefined)
      config = config.replaceAll('_interval: 15s', `_interval: ${options.intervalS}s`);
    const file = (name: string, text: string) => writeFile(join(directory, name), text, { mode: 0o600 });
    await file('prometheus.yml', config);
    await file('otela.rules.yml', options.rules ?? readFileSync(join(SHIPPED, 'otela.rules.yml'), 'utf8'));
    await file('gateway-token', options.gateway.token);
    await file('agent-token', options.agents.token);
    await file('agents.json', JSON.stringify([{ targets: options.agents.hosts }]));
    const address = `127.0.0.1:${await freePort()}`;
    const process = new Managed(
      [
        'prometheus',
        `--config.file=${join(directory, 'prometheus.yml')}`,
        `--storage.tsdb.path=${join(directory, 'data')}`,
        `--web.listen-address=${address}`,
      ],
      { label: 'prometheus' },
    );
    await process.line(/Server is ready to receive web requests/, 20_000);
    return new Prometheus(`http://${address}`, process);
  }

  async #get(path: string, query: Record<string, string> = {}): Promise<unknown> {
    const response = await fetch(`${this.url}/api/v1/${path}?${new URLSearchParams(query)}`);
    const text = await response.text();
    if (!response.ok) throw new Error(`${path} ${JSON.stringify(query)}: ${response.status} ${text}`);
    return JSON.parse(text);
  }

  /** The current value of an expression. @throws if Prometheus refuses it */
  async query(expr: string): Promise<Sample[]> {
    const { data } = vector.parse(await this.#get('query', { query: expr }));
    return data.result.map(({ metric, value }) => ({ labels: metric, value: Number(value[1]) }));
  }

  /** Names and expressions of the loaded alerts, in Prometheus's form. */
  async alertRules(): Promise<{ name: string; query: string }[]> {
    return rules.parse(await this.#get('rules', { type: 'alert' })).data.groups.flatMap((group) => group.rules);
  }

  async firing(): Promise<Alert[]> {
    return alerts.parse(await this.#get('alerts')).data.alerts.filter(({ state }) => state === 'firing');
  }

  /** Waits until an alert of this name fires, and returns it. */
  fires(name: string, withinMs: number): Promise<Alert> {
    return eventually(`alert ${name}`, withinMs, async () =>
      (await this.firing()).find(({ labels }) => labels.alertname === name),
    );
  }

  /** Waits until no alert of this name fires. */
  async quiet(name: string, withinMs: number): Promise<void> {
    await eventually(`no alert ${name}`, withinMs, async () =>
      (await this.firing()).some(({ labels }) => labels.alertname === name) ? undefined : true,
    );
  }

  stop(): Promise<void> {
    return this.#process.stop();
  }
}
